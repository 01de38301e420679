"""What the set-up installs is pinned: the same versions on every machine."""

import pathlib
import re

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
            assert normalised(entry) in versions, f"{group.name}: {entry}"
