"""The tests of the PyTorch boundary: one thread, and modules of this folder by their own names."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))


def pytest_collection_modifyitems(items):
    # What models warn of is not what is tested.
    for item in items:
        item.add_marker(pytest.mark.filterwarnings("ignore"))
