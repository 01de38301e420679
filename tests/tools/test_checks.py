"""The checks of `make lint` reject what they must reject, and say where."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture
def tree(tmp_path):
    """write(path, text) in a temporary project; check(tool) runs a check on it."""

    class Tree:
        def write(self, path, text):
            file = tmp_path / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")

        def read(self, path):
            return (tmp_path / path).read_text(encoding="utf-8")

        def check(self, tool, *options):
            return subprocess.run([sys.executable, ROOT / "tools" / tool, *options, tmp_path],
                                  capture_output=True, text=True)

        def refused(self, tool):
            result = self.check(tool)
            assert result.returncode == 1, result.stdout + result.stderr
            return result.stdout

    return Tree()


# --- check_includes -------------------------------------------------------------------------------

def include(target):
    return f'#pragma once\n\n#include "{target}"\n'


def rooms(tree, **depends):
    """Rooms in this order, each with the rooms it declares."""
    tree.write("discreet/CMakeLists.txt", f"set(rooms {' '.join(depends)})\n")
    for room, names in depends.items():
        tree.write(f"discreet/{room}/CMakeLists.txt",
                   f"discreet_room({room}\n  SOURCES a.cpp\n  DEPENDS {names}\n  LINKS x::x)\n")


def test_includes_of_declared_rooms_are_fine(tree):
    rooms(tree, base="", accounting="base", mechanism="accounting", report="mechanism")
    tree.write("discreet/accounting/event.h", include("discreet/base/error.h"))
    tree.write("discreet/mechanism/clip/clip.h", include("discreet/accounting/event.h"))
    tree.write("discreet/mechanism/noise/noise.cpp", include("discreet/mechanism/clip/clip.h"))
    tree.write("discreet/mechanism/clip/ghost/ghost.h", include("discreet/mechanism/clip/clip.h"))
    tree.write("discreet/report/html.h", include("discreet/mechanism/clip/clip.h"))
    tree.write("discreet/report/html_test.cpp", include("discreet/base/error_testing.h"))  # reached, not declared
    tree.write("discreet/base/sum.cpp", include("hwy/highway.h"))
    tree.write("cli/main.cpp", include("discreet/discreet.h"))
    result = tree.check("check_includes.py")
    assert result.returncode == 0 and result.stdout.count("\n") == 1, result.stdout


@pytest.mark.parametrize("file, target, words", [
    ("a.cpp", "ledger", "room run does not declare ledger after DEPENDS"),
    ("a.cpp", "base", "room run does not declare base after DEPENDS"),
    ("a_test.cpp", "ledger", "room run does not reach room ledger"),
    ("a_testing.h", "report", "room run does not reach room report"),
])
def test_an_undeclared_include_is_refused_with_file_and_line(tree, file, target, words):
    rooms(tree, base="", config="base", ledger="base", run="config", report="run")
    for room, other in (("config", "base"), ("ledger", "base"), ("run", "config"), ("report", "run")):
        tree.write(f"discreet/{room}/used.h", include(f"discreet/{other}/x.h"))
    tree.write(f"discreet/run/{file}", include(f"discreet/{target}/b.h"))
    assert tree.refused("check_includes.py") == f"discreet/run/{file}:3: {words}\n"


def test_a_folder_that_includes_a_later_one_is_refused(tree):
    rooms(tree, mechanism="")
    tree.write("discreet/mechanism/clip/clip.h", include("discreet/mechanism/step/apply.h"))
    assert tree.refused("check_includes.py") == (
        "discreet/mechanism/clip/clip.h:3: folder mechanism/clip must not include mechanism/step, which comes after it\n")


@pytest.mark.parametrize("target, words", [
    ("discreet/discreet.h", "umbrella"), ("../base/error.h", "path from the root"),
    ("neighbour.h", "path from the root"), ("tests/fuzz/fuzz.h", "must not include tests"),
    ("cli/command.h", "must not include cli"), ("discreet/attic/x.h", "attic is not a room"),
])
def test_a_room_names_only_files_of_rooms(tree, target, words):
    rooms(tree, run="")
    tree.write("discreet/run/neighbour.h", "")
    tree.write("discreet/run/trace.h", include(target))
    assert "discreet/run/trace.h:3: " in (said := tree.refused("check_includes.py"))
    assert words in said


def test_a_folder_that_is_not_a_room_is_refused(tree):
    rooms(tree, base="")
    tree.write("discreet/utils/misc.h", "")
    assert "utils is not a room" in tree.refused("check_includes.py")


@pytest.mark.parametrize("depends, words", [
    ("base accounting", "room random must not depend on room accounting, which comes after it"),
    ("base numerics", "room random includes nothing of numerics; remove it from DEPENDS"),
    ("base attic", "attic is not a room"),
])
def test_a_wrong_declaration_is_refused(tree, depends, words):
    rooms(tree, base="", numerics="", random=depends, accounting="")
    tree.write("discreet/random/a.cpp", include("discreet/base/b.h"))
    assert f"discreet/random/CMakeLists.txt:3: {words}" in tree.refused("check_includes.py")


# --- check_proofs ---------------------------------------------------------------------------------

def test_a_bound_with_its_proof_or_citation_is_fine(tree):
    tree.write("discreet/accounting/pld.h", "// Proof: pld.md\nInterval epsilon(double delta);\n")
    tree.write("discreet/accounting/pld.md", "# PLD\n\n## Proven\n\nAll of it.\n")
    tree.write("discreet/accounting/tradeoff/gdp.h",
               "// An upper bound.\n// Citation: Dong et al. 2022, corollary 2.13\n")
    assert tree.check("check_proofs.py").returncode == 0


def test_a_proof_that_is_missing_is_refused(tree):
    tree.write("discreet/numerics/sum.h", "#pragma once\n// Proof: sum.md\n")
    assert tree.refused("check_proofs.py") == (
        "discreet/numerics/sum.h:2: the proof sum.md is not beside this file\n")


def test_a_proof_that_claims_nothing_is_refused(tree):
    tree.write("discreet/numerics/sum.h", "// Proof: sum.md\n")
    tree.write("discreet/numerics/sum.md", "# Sums\n\nThis is proven somewhere.\n")
    assert "has no heading" in tree.refused("check_proofs.py")


@pytest.mark.parametrize("declaration", [
    "Interval epsilon(const Composition& steps, double delta);",
    "// The certified epsilon of a composition.\ndouble epsilon(double delta);",
    "// An upper bound of delta.\ndouble delta(double epsilon);",
])
def test_a_bound_without_a_proof_is_refused(tree, declaration):
    tree.write("discreet/accounting/pld.h", declaration + "\n")
    assert tree.refused("check_proofs.py").startswith("discreet/accounting/pld.h:1: declares a bound")


# --- check_conformance ----------------------------------------------------------------------------

def clause(**changes):
    """The YAML of one clause; a field that is None is left out."""
    fields = {"id": "A-1", "requirement": "x", "room": "base", "tests": "[]", "reach": "[]"} | changes
    lines = [f"{name}: {value}" for name, value in fields.items() if value is not None]
    return "  - " + "\n    ".join(lines) + "\n"


def clauses(tree, *clauses):
    tree.write("tests/conformance/clauses/s1.yaml",
               "specification: S1\ntitle: A text\nsection: 'S1 section 1'\nparts:\n- title: 0.A\n  clauses:\n"
               + "".join(clauses))


def write_page(tree):
    return tree.check("check_conformance.py", "--write")


def test_the_clauses_count_what_is_open_in_each_room(tree):
    tree.write("discreet/base/cbor_test.cpp", "TEST(Cbor, RefusesLongHeads) {}\n")
    tree.write("tests/cli/test_main.py", "def test_version():\n    pass\n")
    clauses(tree, clause(requirement="'x | y'", tests="[Cbor.RefusesLongHeads, 'tests/cli/test_main.py::test_version']",
                         reach="[command, c++]"),
            clause(id="A-2", room="run", note="B1"))
    tree.write("docs/conformance.md", "")
    assert write_page(tree).returncode == 0
    result = tree.check("check_conformance.py")
    assert result.returncode == 0, result.stdout
    assert result.stdout == "conformance: 1 of 2 clauses open: base 0 of 1, run 1 of 1\n"
    page = tree.read("docs/conformance.md")
    assert "1 of 2 clauses have a named test; 1 are open." in page and "Open: A-2." in page
    assert ("| A-1 | x \\| y | base | command, c++ | `Cbor.RefusesLongHeads`, `tests/cli/test_main.py::test_version` |  |\n"
            "| A-2 | x | run |  | not yet | B1 |\n") in page


def test_a_page_that_is_not_what_the_clauses_say_is_refused(tree):
    clauses(tree, clause())
    tree.write("docs/conformance.md", "")
    assert tree.refused("check_conformance.py") == (
        "docs/conformance.md: not what the clauses say; run tools/check_conformance.py --write\n")
    assert write_page(tree).returncode == 0 and tree.check("check_conformance.py").returncode == 0
    clauses(tree, clause(requirement="y"))
    assert "not what the clauses say" in tree.refused("check_conformance.py")


@pytest.mark.parametrize("changes, words", [
    ({"tests": "[Cbor.RefusesLongHeads]", "reach": "[c++]"}, "A-1: the test Cbor.RefusesLongHeads does not exist"),
    ({"tests": "['tests/cli/test_main.py::test_x']", "reach": "[command]"}, "test_x does not exist"),
    ({"room": "attic"}, "A-1: unknown room attic"),
    ({"tests": "[Cbor.AcceptsShortHeads]", "reach": "[telepathy]"}, "A-1: unknown reach telepathy"),
    ({"tests": "[Cbor.AcceptsShortHeads]", "reach": "[command]"}, "A-1: the reach command needs a test that uses it"),
    ({"tests": "[Cbor.AcceptsShortHeads]"}, "A-1: a clause with tests has a reach"),
    ({"reach": "[c++]"}, "an open one has none"),
    ({"reach": None}, "missing reach"),
    ({"test": "[]"}, "unknown test"),
])
def test_a_clause_that_promises_wrongly_is_refused(tree, changes, words):
    tree.write("discreet/base/cbor_test.cpp", "TEST(Cbor, AcceptsShortHeads) {}\n")
    clauses(tree, clause(**changes))
    said = tree.refused("check_conformance.py")
    assert said.startswith("tests/conformance/clauses/s1.yaml: ") and words in said


CONSTANT = "KEYS = {'sigma': 2}\n\n\ndef run():\n    return KEYS\n\n\ndef test_it():\n    assert run()\n"


@pytest.mark.parametrize("requirement, test, accepted", [
    ("`a.sigma: float`, default `1`.", "'python/tests/test_a.py::test_it'", True),  # in a constant that a function uses
    ("`a.sigma: float`, default `1`.", "'python/tests/test_b.py::test_it'", False),
    ("`sigma`: of the step.", "Noise.HasTheDeviationSigma", True),
    ("`clip`: of the step.", "Noise.HasTheDeviationSigma", False),
    ("`sigma`: of the step.", "ConfigRead.TakesSigma", False),  # a key that is read need not act
    ("`iter` has `sigma_t`.", "Noise.HasTheDeviationSigma", True),
    ("Holds `clip_t`.", "Noise.HasTheDeviationSigma", False),
    ("`sigma` and `clip` are positive.", "Noise.IsPositive", True),  # about more than a name
])
def test_a_clause_about_a_name_needs_a_test_that_mentions_it(tree, requirement, test, accepted):
    tree.write("python/tests/test_a.py", CONSTANT)
    tree.write("python/tests/test_b.py", CONSTANT.replace("return KEYS", "return 2"))
    tree.write("discreet/base/a_test.cpp", "TEST(Noise, HasTheDeviationSigma) {\n  EXPECT_EQ(m.sigma, 2);\n}\n\n"
               "TEST(Noise, IsPositive) {\n  clip();\n}\n\nTEST(ConfigRead, TakesSigma) {\n  EXPECT_EQ(c.sigma, 2);\n}\n")
    clauses(tree, clause(requirement=f'"{requirement}"', tests=f"[{test}]", reach="[python]" if "::" in test else "[c++]"))
    tree.write("docs/conformance.md", "")
    result = write_page(tree)
    assert result.returncode == (not accepted) and ("mentions" in result.stdout) == (not accepted), result.stdout


def test_an_id_occurs_once(tree):
    clauses(tree, clause(), clause())
    assert "tests/conformance/clauses/s1.yaml: A-1: the id occurs twice" in tree.refused("check_conformance.py")


# --- check_mechanism ------------------------------------------------------------------------------

def test_constants_functions_and_locals_are_no_hidden_state(tree):
    tree.write("discreet/mechanism/clip.cpp", """#include <map>
namespace discreet::mechanism {
namespace {
constexpr int kMost = 1 << 20;
constexpr std::uint64_t kLimit = std::uint64_t{1} << 51;
const char* const kNames[] = {"a", "b"};
enum class Cut { kFlat };
struct Plan { int parts = 0; };
static int share(int a, int b) { int c = a; return c + b; }
const std::map<int, int>& table() { static const std::map<int, int> all = {{1, 2}}; return all; }
}  // namespace
double scale(double norm, double clip);
}  // namespace discreet::mechanism
""")
    assert tree.check("check_mechanism.py").returncode == 0


@pytest.mark.parametrize("line, name", [
    ("int counter = 0;", "int counter"), ("std::vector<double> cache;", "std::vector<double> cache"),
    ("std::atomic<int> calls{0};", "std::atomic<int> calls"),
    ("inline double last = 1;", "double last"), ("Generator shared(7);", "Generator shared(7)"),
    ("void f() {\n  static int calls = 0;\n}", "int calls"),
    ("double g() { thread_local double last; return last; }", "double last"),
])
def test_a_variable_that_outlives_a_call_is_refused(tree, line, name):
    tree.write("discreet/mechanism/clip.cpp", f"namespace discreet::mechanism {{\n{line}\n}}\n")
    tree.write("discreet/mechanism/clip_test.cpp", f"{line}\n")
    said = tree.refused("check_mechanism.py")
    assert f"'{name}' outlives a call" in said and said.count("\n") == 1


def test_noise_is_drawn_in_one_place(tree):
    for file in ("noise/noise.cpp", "noise/noise_test.cpp", "step/apply.cpp"):
        tree.write(f"discreet/mechanism/{file}", include("discreet/random/gaussian.h"))
    said = tree.refused("check_mechanism.py")
    assert said.startswith("discreet/mechanism/step/apply.cpp:3: ") and said.count("\n") == 1


def test_noise_is_never_drawn_in_binary32(tree):
    for file in ("noise/noise.cpp", "noise/noise_test.cpp"):
        tree.write(f"discreet/mechanism/{file}", "void draw() { random::fill_gaussian_native32(g, p, 1.0f, out); }\n")
    said = tree.refused("check_mechanism.py")
    assert said.startswith("discreet/mechanism/noise/noise.cpp:1: fill_gaussian_native32") and said.count("\n") == 1


def test_a_field_of_the_state_that_is_not_saved_or_read_back_is_refused(tree):
    tree.write("discreet/mechanism/step/apply_impl.h", "struct Mechanism::State {\n  std::uint64_t t = 0;\n"
               "  std::optional<double> projected;  // advisory\n  // Not saved.\n  Prepared now;\n};\n")
    source = ("Bytes Mechanism::save() const {{\n  encode(s.t{0});\n}}\n"
              "std::unique_ptr<Mechanism::State> Mechanism::read(ByteView) const {{\n  s.t = 1; s.now = prepare(s.t){1};\n}}\n")
    tree.write("discreet/mechanism/step/apply_state.cpp", source.format(", s.projected", ", s.projected"))
    assert tree.check("check_mechanism.py").returncode == 0
    tree.write("discreet/mechanism/step/apply_state.cpp", source.format("", ", s.projected"))
    assert tree.refused("check_mechanism.py") == (
        "discreet/mechanism/step/apply_impl.h:3: the field projected of the state is not in save()\n")
    tree.write("discreet/mechanism/step/apply_state.cpp", source.format(", s.projected", ""))
    assert "projected of the state is not in read()" in tree.refused("check_mechanism.py")


# --- check_initializers ---------------------------------------------------------------------------

@pytest.mark.parametrize("line", [
    'rows.push_back({{name, 5}, parse(text)});', 'return {{name}, parse(text)};',
    'Row row{\n    {.text = name},\n    parse(text)};', 'take(Row{1, {name, {}}, get<int>(text)});',
])
def test_a_nested_list_without_a_type_before_a_call_is_refused(tree, line):
    tree.write("discreet/base/a.cpp", f"void f() {{\n  {line}\n}}\n")
    said = tree.refused("check_initializers.py")
    assert said.startswith("discreet/base/a.cpp:") and said.count("\n") == 1


@pytest.mark.parametrize("line", [
    'rows.push_back({Name{name, 5}, parse(text)});', 'return map({{"a", f(1)}, {"b", g(2)}});',
    'Row row{parse(text), {name, 5}};', 'Row row{{1, 2}, parse(text)};', 'Row row{{name, 5}, (a - b) / c};',
    'if (a) { f({b}, 1); g(c); }', '// {{name}, parse(text)}',
])
def test_other_lists_are_fine(tree, line):
    tree.write("discreet/base/a.cpp", f"void f() {{\n  {line}\n}}\n")
    assert tree.check("check_initializers.py").returncode == 0


def test_the_project_itself_passes():
    for tool in ("check_includes.py", "check_initializers.py", "check_proofs.py", "check_mechanism.py", "check_conformance.py"):
        result = subprocess.run([sys.executable, ROOT / "tools" / tool], capture_output=True, text=True)
        assert result.returncode == 0, result.stdout
