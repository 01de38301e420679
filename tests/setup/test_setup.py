"""Set-up installs what is missing, is silent when nothing is, and fails in one sentence."""

import pathlib
import shutil
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def machine(tmp_path):
    """A checkout on a machine whose dpkg-query, apt-get and id we control."""
    shutil.copytree(ROOT / "tools/setup", tmp_path / "checkout/tools/setup")
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()

    class Machine:
        def command(self, name, script):
            path = bin_dir / name
            path.write_text(f"#!/bin/bash\n{script}\n")
            path.chmod(0o755)

        def setup(self, *args, env=None):
            return subprocess.run(
                ["/bin/bash", tmp_path / "checkout/tools/setup/setup.sh", *args],
                capture_output=True, text=True,
                env={"PATH": f"{bin_dir}:/usr/bin:/bin", **(env or {})})

    return Machine()


NOTHING_INSTALLED = "exit 1"


def one_sentence(result):
    assert result.returncode == 3
    lines = result.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("set-up: "), result.stderr
    return lines[0]


def test_missing_packages_without_root_are_named(machine):
    machine.command("dpkg-query", NOTHING_INSTALLED)
    machine.command("id", "echo 1000")
    if shutil.which("sudo", path="/usr/bin:/bin"):
        machine.command("sudo", "exit 1")
        assert "apt-get update failed" in one_sentence(machine.setup("--no-python", "build"))
    else:
        assert "libssl-dev" in one_sentence(machine.setup("--no-python", "build"))


def test_unreachable_network_is_one_sentence(machine):
    machine.command("dpkg-query", NOTHING_INSTALLED)
    machine.command("id", "echo 0")
    machine.command("apt-get", "echo 'Err: could not resolve'; exit 100")
    assert "is the network up?" in one_sentence(machine.setup("--no-python", "build"))


def test_unknown_package_is_named(machine):
    machine.command("dpkg-query", NOTHING_INSTALLED)
    machine.command("id", "echo 0")
    machine.command("apt-get", '[ "$1" = update ]')
    sentence = one_sentence(machine.setup("--no-python", "build"))
    assert "libssl-dev" in sentence and "build/setup.log" in sentence


def test_wrong_version_is_named(machine):
    machine.command("dpkg-query", 'echo "installed 99.0"')
    sentence = one_sentence(machine.setup("--no-python", "build"))
    assert "99.0" in sentence and "Debian 12" in sentence


def test_second_time_is_silent_and_quick():
    begin = time.monotonic()
    result = subprocess.run([ROOT / "tools/setup/setup.sh", "build", "test"],
                            capture_output=True, text=True)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert time.monotonic() - begin < 5
