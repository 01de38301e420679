#!/usr/bin/env python3
"""Writes tools/setup/python-GROUP.lock: every package that the names in python-GROUP.txt need, at the version that
python/constraints.txt pins, with the SHA-256 of each wheel that Python 3.11 on Linux can install.

    tools/setup/lock.py INDEX WHEEL…     INDEX: the URL of a package index (PEP 503)
                                         WHEEL: PyTorch's builds for processors only, torch-VERSION+cpu-….whl

Run it after changing a name or a version. python-cpu.lock has the WHEELs, which are preferred where pip finds one;
python-cuda.lock what PyTorch's wheels of the index need besides."""

import hashlib
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import urllib.request

SETUP = pathlib.Path(__file__).resolve().parent
CONSTRAINTS = SETUP.parents[1] / "python" / "constraints.txt"
LINK = re.compile(r'href="([^"#]+)#sha256=([0-9a-f]{64})"')


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def is_installable(wheel: str) -> bool:
    """By Python 3.11 on Linux with glibc."""
    python, abi, platform = wheel.removesuffix(".whl").split("-")[-3:]
    if platform != "any" and ("linux" not in platform or "musllinux" in platform):
        return False
    if abi == "none":
        minors = re.findall(r"\bpy3(\d*)\b", python.replace(".", " "))
        return "cp311" in python or any(int(minor or 0) <= 11 for minor in minors)
    if "abi3" in abi.split("."):
        return any(int(minor) <= 11 for minor in re.findall(r"cp3(\d+)", python))
    return "cp311" in abi.split(".")


def closure(python: str, *arguments: str) -> dict[str, str]:
    """Name → version of everything that pip would install."""
    report = subprocess.run([python, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--only-binary",
                             ":all:", "--report", "-", *arguments], check=True, stdout=subprocess.PIPE).stdout
    found = (package["metadata"] for package in json.loads(report)["install"])
    return {normalised(package["name"]): package["version"].partition("+")[0] for package in found}


def hashes(index: str, name: str, version: str) -> list[str]:
    with urllib.request.urlopen(f"{index.rstrip('/')}/{name}/") as page:
        links = LINK.findall(page.read().decode())
    own = re.compile(rf"[^/]*-{re.escape(version)}(-\d[^-]*)?-[^-]+-[^-]+-[^-]+\.whl")
    return [digest for url, digest in links
            if own.fullmatch(file := url.rpartition("/")[2]) and is_installable(file)]


def write(group: str, packages: dict[tuple[str, str], list[str]]) -> None:
    lines = ["# Written by tools/setup/lock.py; do not edit."]
    for (name, version), accepted in sorted(packages.items()):
        if not accepted:
            sys.exit(f"lock: {name} {version} has no wheel for Python 3.11 on Linux; pin another version")
        lines += [f"{name}=={version} \\", *(f"    --hash=sha256:{digest} \\" for digest in sorted(accepted))]
        lines[-1] = lines[-1].removesuffix(" \\")
    (SETUP / f"python-{group}.lock").write_text("\n".join(lines) + "\n", "utf-8")


def main(index: str, *wheels: str) -> None:
    processors: dict[tuple[str, str], list[str]] = {}
    for wheel in map(pathlib.Path, wheels):
        name, version = wheel.name.split("-")[:2]
        processors.setdefault((name, version), []).append(hashlib.sha256(wheel.read_bytes()).hexdigest())
    write("cpu", processors)
    found: dict[tuple[str, str], list[str]] = {}

    def of_index(packages: dict[str, str]) -> dict[tuple[str, str], list[str]]:
        for package in packages.items():
            if package not in found:
                found[package] = hashes(index, *package)
        return {package: found[package] for package in packages.items()}

    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["/usr/bin/python3", "-m", "venv", folder], check=True)
        python = f"{folder}/bin/python"
        for names in sorted(SETUP.glob("python-*.txt")):
            packages = closure(python, "-c", str(CONSTRAINTS), "-r", str(names))
            write(names.stem.removeprefix("python-"), of_index(packages))
        # As the index has PyTorch. A newer pip reads what it needs without its files, of several GB.
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--upgrade", "pip"], check=True)
        version = dict(found.keys())["torch"]
        whole = closure(python, "--isolated", "--index-url", index, "-c", str(CONSTRAINTS), f"torch=={version}")
        write("cuda", of_index(dict(whole.items() - found.keys())))


if __name__ == "__main__":
    main(*sys.argv[1:])
