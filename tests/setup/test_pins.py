"""What the set-up installs is pinned: the same versions on every machine."""

import pathlib
import re
import subprocess
import sys
import zipfile

ROOT = pathlib.Path(__file__).parents[2]
SETUP = ROOT / "tools" / "setup"


def entries(path):
    lines = (line.strip() for line in path.read_text("utf-8").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def normalised(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned():
    pairs = [entry.split("==") for entry in entries(ROOT / "python" / "constraints.txt")]
    assert all(len(pair) == 2 for pair in pairs)
    return {normalised(name): version for name, version in pairs}


def test_every_debian_package_has_a_version():
    groups = sorted(SETUP.glob("debian-*.txt"))
    assert groups
    for group in groups:
        for entry in entries(group):
            assert re.fullmatch(r"[a-z0-9.+-]+ (\d+:)?\d[\w.+~-]*", entry), f"{group.name}: {entry}"


def test_every_python_package_is_pinned_exactly():
    versions = pinned()
    assert versions
    for name, version in versions.items():
        assert re.fullmatch(r"\d+(\.\w+)*(\+\w+)?", version), f"{name}: {version}"


def test_groups_name_only_pinned_packages():
    versions = pinned()
    groups = sorted(SETUP.glob("python-*.txt"))
    assert groups
    for group in groups:
        for entry in entries(group):
            assert normalised(entry.partition("[")[0]) in versions, f"{group.name}: {entry}"


def locked(group):
    """Name → (version, hashes)."""
    out = {}
    for entry in re.split(r"(?<!\\)\n", group.read_text("utf-8").strip()):
        if not entry.startswith("#"):
            found = re.fullmatch(r"([\w.-]+)==([\w.+]+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)", entry)
            assert found, f"{group.name}: {entry}"
            out[found[1]] = found[2], set(re.findall(r"[0-9a-f]{64}", found[3]))
    return out


def test_every_group_is_locked_by_hash():
    versions, known = pinned(), {}
    for names in sorted(SETUP.glob("python-*.txt")):
        packages = locked(names.with_suffix(".lock"))
        for entry in entries(names):
            assert normalised(entry.partition("[")[0]) in packages, f"{names.name}: {entry}"
        for name, found in packages.items():
            assert found[0] == versions[name], f"{names.name}: {name}"
            assert known.setdefault(name, found) == found, f"{names.name}: {name} has other hashes elsewhere"
    assert known.keys() == versions.keys()
    assert {name: version for name, (version, _) in locked(SETUP / "python-cpu.lock").items()} \
        == {"torch": versions["torch"] + "+cpu"}
    assert not locked(SETUP / "python-cuda.lock").keys() & known.keys()


def test_locks_name_no_machine():
    for path in sorted(SETUP.glob("python-*")):
        assert not re.search(r"https?://|index-url|find-links", path.read_text("utf-8")), path.name


def test_what_builds_the_wheel_is_what_is_locked():
    required = re.search(r"requires = \[(.*)\]", (ROOT / "pyproject.toml").read_text("utf-8"))[1]
    build = locked(SETUP / "python-build.lock")
    for name, version in re.findall(r'"([\w-]+)==([\w.]+)"', required):
        assert build[normalised(name)][0] == version


def test_a_file_with_another_hash_is_not_installed(tmp_path):
    """As set-up calls pip; the file stands for one that was replaced in the index."""
    wheel = tmp_path / "nanobind-3.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("nanobind/__init__.py", "raise SystemExit('not nanobind')")
        archive.writestr("nanobind-3.1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: nanobind\nVersion: 3.1.0\n")
        archive.writestr("nanobind-3.1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("nanobind-3.1.0.dist-info/RECORD", "")
    call = re.search(r"-m pip (install.*?)\"\$@\"", (SETUP / "setup.sh").read_text("utf-8"), re.DOTALL)[1]
    options = call.replace("\\\n", " ").split()
    lock = tmp_path / "one.lock"
    lock.write_text(re.search(r"nanobind==(.|\n)*?(?=\n\w)", (SETUP / "python-build.lock").read_text("utf-8"))[0])
    result = subprocess.run([sys.executable, "-m", "pip", *options, "--no-index", "--find-links", tmp_path, "--target",
                             tmp_path / "installed", "-r", lock], capture_output=True, text=True,
                            env={"PATH": "/usr/bin:/bin", "PIP_CONFIG_FILE": "/dev/null"})
    assert result.returncode != 0 and "DO NOT MATCH THE HASHES" in result.stderr, result.stderr
    assert not (tmp_path / "installed").exists()
