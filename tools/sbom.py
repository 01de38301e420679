#!/usr/bin/env python3
"""Writes a CycloneDX 1.6 bill of materials of the command and the Python package that were built.

    tools/sbom.py BUILD OUT     BUILD: the build folder

Required: the Debian packages that they are linked with or whose headers they contain, and what the Python package is built
with. Excluded, because only tests and tools need them: the other packages of tools/setup/python-*.lock. The same build gives
the same bytes."""

import json
import pathlib
import re
import subprocess
import sys
import uuid
from importlib import metadata

ROOT = pathlib.Path(__file__).resolve().parents[1]
SETUP = ROOT / "tools" / "setup"


def output(*command: object) -> str:
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stdout


def linked(binary: pathlib.Path) -> set[str]:
    """The Debian packages of the libraries that a program loads."""
    paths = [pathlib.Path(path).resolve() for path in re.findall(r"=> (/\S+)", output("ldd", binary))]
    # dpkg may know /usr/lib as /lib.
    return {output("dpkg-query", "-S", f"*{str(path).removeprefix('/usr')}").split(":")[0] for path in paths}


def headers() -> set[str]:
    """Development packages of which something may be compiled in."""
    lines = (SETUP / "debian-build.txt").read_text("utf-8").splitlines()
    return {name for name in (line.split()[0] for line in lines if line) if name.endswith("-dev") and name != "python3-dev"}


def debian(name: str) -> dict:
    version, architecture = output("dpkg-query", "-W", "-f", "${Version} ${Architecture}", name).split()
    text = pathlib.Path(f"/usr/share/doc/{name}/copyright").read_text("utf-8", "replace")
    names = sorted(set(re.findall(r"^License: *(\S[^\n]*)", text, re.MULTILINE))) or [f"see /usr/share/doc/{name}/copyright"]
    purl = f"pkg:deb/debian/{name}@{version.replace(':', '%3A').replace('+', '%2B')}?arch={architecture}&distro=debian-12"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "scope": "required",
            "licenses": [{"license": {"name": licence}} for licence in names], "purl": purl}


def python_licence(name: str) -> list[dict]:
    """As the installed package states it; nothing if it is not installed."""
    try:
        about = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return []
    stated = about.get("License-Expression") or (about.get("License") or "").strip().split("\n")[0]
    stated = stated or ", ".join(c.split(" :: ")[-1] for c in about.get_all("Classifier") or [] if c.startswith("License"))
    return [{"license": {"name": stated}}] if stated else []


def python_packages() -> list[dict]:
    groups: dict[tuple[str, str], set[str]] = {}
    hashes: dict[tuple[str, str], set[str]] = {}
    for lock in sorted(SETUP.glob("python-*.lock")):
        for name, version, files in re.findall(r"^(\S+)==(\S+)((?: \\\n +--hash=\S+)+)", lock.read_text("utf-8"), re.MULTILINE):
            groups.setdefault((name, version), set()).add(lock.stem.removeprefix("python-"))
            hashes.setdefault((name, version), set()).update(re.findall(r"sha256:(\S+)", files))
    out = []
    for (name, version), of in sorted(groups.items()):
        purl = f"pkg:pypi/{name}@{version.replace('+', '%2B')}"
        licences = python_licence(name)
        out.append({"type": "library", "bom-ref": purl, "name": name, "version": version,
                    "scope": "required" if "build" in of else "excluded",
                    "hashes": [{"alg": "SHA-256", "content": digest} for digest in sorted(hashes[name, version])],
                    **({"licenses": licences} if licences else {}), "purl": purl})
    return out


def main(build: str, out: str) -> None:
    folder = pathlib.Path(build)
    binaries = [folder / "discreet", *sorted((folder / "python" / "discreet").glob("_core*.so"))]
    packages = set().union(headers(), *map(linked, binaries))
    version = re.search(r"project\(discreet VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text("utf-8"))[1]
    components = [*map(debian, sorted(packages)), *python_packages()]
    own = f"pkg:generic/discreet@{version}"
    required = [part["bom-ref"] for part in components if part["scope"] == "required"]
    bill = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
            "metadata": {"component": {"type": "application", "bom-ref": own, "name": "discreet", "version": version,
                                       "licenses": [{"license": {"id": "Apache-2.0"}}], "purl": own}},
            "components": components, "dependencies": [{"ref": own, "dependsOn": required}]}
    # Derived from the content: the same build has the same number.
    bill["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(bill, sort_keys=True))}"
    pathlib.Path(out).write_text(json.dumps(bill, indent=1, sort_keys=True) + "\n", "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
