"""The command and the extension have what the hardening flags promise: read from the binaries."""

import os
import pathlib
import platform
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("DISCREET_BUILD", ROOT / "build"))
EXTENSIONS = list((BUILD / "python/discreet").glob("_core*.so"))
BINARIES = {"command": BUILD / "discreet"} | ({"extension": EXTENSIONS[-1]} if EXTENSIONS else {})


def readelf(option, binary):
    return subprocess.run(["readelf", "-W", option, binary], check=True, capture_output=True, text=True).stdout


@pytest.fixture(params=["command", "extension"])
def binary(request):
    return BINARIES[request.param]


def test_addresses_are_random(binary):
    assert re.search(r"Type:\s+DYN", readelf("-h", binary))
    if binary.name == "discreet":
        assert "PIE" in re.search(r"FLAGS_1.*", readelf("-d", binary))[0]


def test_tables_are_read_only_once_it_runs(binary):
    dynamic = readelf("-d", binary)
    assert "GNU_RELRO" in readelf("-l", binary)
    assert "BIND_NOW" in dynamic or "NOW" in re.search(r"FLAGS_1.*", dynamic)[0]


def test_the_stack_is_not_executable(binary):
    assert re.search(r"GNU_STACK.* RW +0x", readelf("-l", binary))


def test_canaries_and_checked_functions_are_used(binary):
    symbols = readelf("--dyn-syms", binary)
    assert "__stack_chk_fail" in symbols
    assert re.search(r"__(memcpy|memset|memmove|read|printf|fprintf|snprintf|vsnprintf|strcpy|strcat)_chk", symbols)
    assert "_ZSt21__glibcxx_assert_fail" in symbols  # libstdc++'s bounds


@pytest.mark.skipif(platform.machine() != "x86_64", reason="marks of x86")
def test_calls_may_land_on_marks_only(binary):
    # Debian 12's start files have no marks, so the linker does not note them for the whole; each function has its own.
    entries = re.findall(r"([0-9a-f]{16}) +\d+ FUNC +GLOBAL +DEFAULT +\d+ (?:PyInit__core|main)\b",
                         readelf("--dyn-syms", binary))
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", "-j", ".text", binary], check=True, capture_output=True,
                          text=True).stdout
    assert text.count("endbr64") > 1000
    for entry in entries:
        assert re.search(rf"^ +{int(entry, 16):x}:\s+endbr64", text, re.MULTILINE)
