import pathlib
import re

import pytest

import discreet
from discreet.unlearning import CapacityError

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_version_is_the_projects():
    declared = re.search(r"project\(discreet VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())
    assert discreet.__version__ == declared.group(1)


def test_package_is_typed():
    package = pathlib.Path(discreet.__file__).parent
    assert (package / "py.typed").exists()
    assert "def version() -> str:" in (package / "_core.pyi").read_text()


def test_an_error_is_a_value_error_with_its_attributes():
    with pytest.raises(ValueError, match="sampling rate") as raised:
        discreet.account(sampling_rate=2, noise_multiplier=1, steps=10, delta=1e-5)
    error = raised.value
    assert isinstance(error, discreet.Error)
    assert str(error) == f"{error.code}: {error.op}: {error.sentence}"
    assert all(issubclass(CapacityError, kind) for kind in (discreet.Error, RuntimeError, ValueError))
