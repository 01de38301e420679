import shutil

import pytest
from corpora import corpus  # noqa: F401


@pytest.fixture
def folder(original, tmp_path):
    """A copy of what the module's fixture `original` made, for a test to change."""
    shutil.copytree(original, tmp_path / "corpus")
    return tmp_path / "corpus"
