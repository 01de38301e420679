import pathlib
import re

import discreet

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_version_is_the_projects():
    declared = re.search(r"project\(discreet VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())
    assert discreet.__version__ == declared.group(1)


def test_package_is_typed():
    package = pathlib.Path(discreet.__file__).parent
    assert (package / "py.typed").exists()
    assert "def version() -> str:" in (package / "_core.pyi").read_text()
