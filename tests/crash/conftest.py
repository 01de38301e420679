import pathlib
import shutil
import tempfile

import pytest


@pytest.fixture(scope="session")
def memory():
    """A folder in memory where there is one: a kill needs no disk, and there a flush costs nothing."""
    shm = pathlib.Path("/dev/shm")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="discreet-", dir=shm if shm.is_dir() else None))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def fast(memory):
    folder = pathlib.Path(tempfile.mkdtemp(dir=memory))
    yield folder
    shutil.rmtree(folder)
