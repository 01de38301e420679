"""The documents are executed.

In every Markdown file of the project, outside proofs:
  ```console   a line `$ command` is run; the lines below it are its output (`…` stands for anything)
  ```python    is run as a program; a trailing comment `# prints …` is compared with what it prints
  ```cpp       is compiled and run, if it has a main
A block that names ledger.db finds the small ledger of tests/cli/ledger_example.cpp beside it, with its keys and notes.
A page with the comment "The blocks of this page run in order, in one folder" is executed as a whole; there
  ```yaml title="NAME"   writes the file NAME
Links to files of the project lead somewhere.
"""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["DISCREET_BUILD"])
FILES = sorted(
    ROOT / name
    for name in subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True,
                               text=True, check=True).stdout.split()
)


IN_ORDER = "<!-- The blocks of this page run in order, in one folder. -->"


def blocks(language):
    for path in FILES:
        text = path.read_text()
        if IN_ORDER in text:
            continue
        for match in re.finditer(rf"^```{language}\n(.*?)^```", text, re.M | re.S):
            line = text.count("\n", 0, match.start()) + 1
            yield pytest.param(match.group(1), id=f"{path.relative_to(ROOT)}:{line}")


def prepare(block, folder):
    if "ledger.db" in block:
        subprocess.run([BUILD / "tests" / "ledger_example", folder], check=True, capture_output=True)


def matches(expected, actual):
    pattern = re.escape(expected.strip()).replace("…", ".*")
    return re.fullmatch(pattern, actual.strip(), re.S) is not None


def run_console(block, folder):
    env = os.environ | {"PATH": f"{BUILD}:{os.environ['PATH']}"}
    for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
        command, _, expected = part.partition("\n")
        result = subprocess.run(command, shell=True, cwd=folder, env=env, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert matches(expected, result.stdout), f"$ {command}\n{result.stdout}"


def run_python(block, folder):
    if "import torch" in block and importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    result = subprocess.run([sys.executable, "-c", block], cwd=folder, capture_output=True,
                            text=True)
    assert result.returncode == 0, result.stderr
    expected = "\n".join(re.findall(r"# prints (.*)$", block, re.M))
    if expected:
        assert matches(expected, result.stdout), result.stdout


@pytest.mark.parametrize("block", list(blocks("console")))
def test_console_block(block, tmp_path):
    prepare(block, tmp_path)
    run_console(block, tmp_path)


@pytest.mark.parametrize("block", list(blocks("python")))
def test_python_block(block, tmp_path):
    prepare(block, tmp_path)
    run_python(block, tmp_path)


@pytest.mark.parametrize("page", [pytest.param(path, id=str(path.relative_to(ROOT))) for path in FILES
                                  if IN_ORDER in path.read_text()])
def test_page_in_order(page, tmp_path):
    fences = re.compile(r'^```(console|python|yaml title="([\w.]+)")\n(.*?)^```', re.M | re.S)
    for kind, name, block in fences.findall(page.read_text()):
        if name:
            (tmp_path / name).write_text(block)
        else:
            {"console": run_console, "python": run_python}[kind](block, tmp_path)


@pytest.mark.parametrize("block", [b for b in blocks("cpp") if "int main" in b.values[0]])
def test_cpp_block(block, tmp_path):
    prefix = tmp_path / "prefix"
    subprocess.run(["cmake", "--install", BUILD, "--prefix", prefix], check=True,
                   capture_output=True)
    (tmp_path / "main.cpp").write_text(block)
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(block CXX)\n"
        "find_package(discreet REQUIRED)\nadd_executable(block main.cpp)\n"
        "target_link_libraries(block PRIVATE discreet::discreet)\n")
    for command in (["cmake", "-G", "Ninja", "-B", "b", f"-DCMAKE_PREFIX_PATH={prefix}"],
                    ["cmake", "--build", "b"], ["b/block"]):
        result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    expected = "\n".join(re.findall(r"// prints (.*)$", block, re.M))
    assert matches(expected, result.stdout), result.stdout


def links():
    for path in FILES:
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text()):
            if "://" not in target and not target.startswith("mailto:"):
                yield pytest.param(path.parent / target, id=f"{path.relative_to(ROOT)}→{target}")


@pytest.mark.parametrize("target", list(links()))
def test_link_leads_somewhere(target):
    assert target.exists(), target
