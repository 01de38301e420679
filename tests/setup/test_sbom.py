"""The bill of materials is valid CycloneDX and names what the binaries are linked with."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("DISCREET_BUILD", ROOT / "build"))


def bill(out):
    subprocess.run([sys.executable, ROOT / "tools/sbom.py", BUILD, out], check=True)
    return out.read_text("utf-8")


def test_names_every_library_and_package(tmp_path):
    text = bill(tmp_path / "one.json")
    assert text == bill(tmp_path / "two.json")
    components = {part["name"]: part for part in json.loads(text)["components"]}
    needed = subprocess.run(["readelf", "-d", BUILD / "discreet"], check=True, capture_output=True, text=True).stdout
    packages = {"libcrypto": "libssl3", "libsqlite3": "libsqlite3-0", "libfmt": "libfmt9", "libyaml-cpp": "libyaml-cpp0.7",
                "libz": "zlib1g", "libhwy": "libhwy1", "libopenblas": "libopenblas0-pthread", "libstdc++": "libstdc++6",
                "libgcc_s": "libgcc-s1", "libc": "libc6", "libm": "libc6", "ld-linux-x86-64": "libc6"}
    for library in re.findall(r"NEEDED.*\[(.+?)\.so", needed):
        part = components[packages[library]]
        installed = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", part["name"]], check=True,
                                   capture_output=True, text=True)
        assert part["version"] == installed.stdout and part["licenses"] and part["scope"] == "required"
    assert "nlohmann-json3-dev" in components
    assert components["nanobind"]["scope"] == "required" and components["nanobind"]["hashes"]
    assert components["pytest"]["scope"] == "excluded"


@pytest.mark.slow
def test_is_valid_by_the_schema_of_cyclonedx(tmp_path):
    schema = pytest.importorskip("cyclonedx.schema")
    validation = pytest.importorskip("cyclonedx.validation.json")
    validator = validation.JsonStrictValidator(schema.SchemaVersion.V1_6)
    text = bill(tmp_path / "bill.json")
    assert validator.validate_str(text) is None
    wrong = text.replace('"alg": "SHA-256"', '"alg": "none"', 1)
    assert validator.validate_str(wrong) is not None
