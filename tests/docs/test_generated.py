"""Generated pages are up to date; `tools/docs/update` writes them again."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("page, arguments", [("commands", [os.environ["DISCREET"]]), ("errors", [])])
def test_a_page_is_what_its_tool_prints(page, arguments):
    printed = subprocess.run([sys.executable, ROOT / "tools" / "docs" / f"{page}.py", *arguments], check=True,
                             capture_output=True, text=True).stdout
    assert (ROOT / "docs" / "reference" / f"{page}.md").read_text("utf-8") == printed, "run tools/docs/update"
