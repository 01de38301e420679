"""`python -m discreet` runs the command."""

from __future__ import annotations

import os
import pathlib
import shutil
import sys
import sysconfig


def command() -> str | None:
    """The command that was installed or built with this package, else the first on PATH."""
    here = pathlib.Path(__file__).resolve().parent
    for folder in (sysconfig.get_path("scripts"), here.parents[1]):
        if (found := shutil.which("discreet", path=str(folder))) is not None:
            return found
    return shutil.which("discreet")


if __name__ == "__main__":
    program = command()
    if program is None:
        sys.exit("error: IO_ERROR: the command 'discreet' is not installed; run make build, or pip install .")
    os.execv(program, [program, *sys.argv[1:]])
