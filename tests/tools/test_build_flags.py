"""No source is compiled with arithmetic that IEEE 754 does not define."""

import json
import os
import pathlib
import shlex
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]
COMMANDS = pathlib.Path(os.environ.get("DISCREET_BUILD", ROOT / "build")) / "compile_commands.json"
# What would allow the compiler to change results, each by itself.
UNSAFE = {"-ffast-math", "-Ofast", "-funsafe-math-optimizations", "-fassociative-math", "-freciprocal-math",
          "-ffinite-math-only", "-fno-signed-zeros", "-mfpmath=387"}


@pytest.mark.skipif(not COMMANDS.is_file(), reason="needs a build")
def test_every_source_is_compiled_without_fast_math_and_without_contraction():
    sources = 0
    for entry in json.loads(COMMANDS.read_text()):
        file = pathlib.Path(entry["directory"], entry["file"]).resolve()
        if not any(file.is_relative_to(ROOT / room) for room in ("discreet", "cli", "python")):
            continue
        flags = shlex.split(entry["command"])
        assert not UNSAFE & set(flags), file
        assert "-ffp-contract=off" in flags and "-ffp-contract=fast" not in flags, file
        sources += 1
    assert sources > 200


@pytest.mark.parametrize("flag, compiles", [("-fno-fast-math", True), ("-ffast-math", False)])
def test_a_numerics_header_does_not_compile_with_fast_math(flag, compiles):
    command = [os.environ.get("CXX", "c++"), "-std=c++20", "-fsyntax-only", flag, "-I", str(ROOT), "-x", "c++", "-"]
    result = subprocess.run(command, input='#include "discreet/numerics/sum.h"\n', capture_output=True, text=True)
    assert (result.returncode == 0) == compiles and ("-ffast-math" in result.stderr) == (not compiles)
