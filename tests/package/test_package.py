"""What others install: the CMake package, the wheel, the core on a machine without Python."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["DISCREET_BUILD"])
# All sources are compiled again, which is most of an hour of one core; a cache spares it from the second time on.
CACHED = {"CMAKE_CXX_COMPILER_LAUNCHER": "ccache"} if shutil.which("ccache") else {}


def run(*command, **kwargs):
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True, **kwargs)
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result.stdout


def test_find_package_works_after_install(tmp_path):
    run("cmake", "--install", BUILD, "--prefix", tmp_path / "prefix")
    run("cmake", "-G", "Ninja", "-S", ROOT / "tests/package/consumer", "-B", tmp_path / "consumer",
        f"-DCMAKE_PREFIX_PATH={tmp_path / 'prefix'}", "-DCMAKE_BUILD_TYPE=Release")
    run("cmake", "--build", tmp_path / "consumer")
    version, digest = run(tmp_path / "consumer/consumer").split()
    assert run(tmp_path / "prefix/bin/discreet", "--version").split()[1] == version
    assert digest == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_pkg_config_finds_the_library_where_it_is_installed(tmp_path):
    prefix = tmp_path / "prefix"
    run("cmake", "--install", BUILD, "--prefix", prefix)
    (file,) = prefix.rglob("discreet.pc")
    env = os.environ | {"PKG_CONFIG_PATH": str(file.parent)}
    flags = run("pkg-config", "--cflags", "--libs", "discreet", env=env).split()
    run("g++", ROOT / "tests/package/consumer/main.cpp", "-o", tmp_path / "consumer", *flags)
    version, _ = run(tmp_path / "consumer").split()
    assert version == run("pkg-config", "--modversion", "discreet", env=env).strip()


def test_the_command_is_installed_with_manual_pages_completion_and_licence(tmp_path):
    run("cmake", "--install", BUILD, "--prefix", tmp_path)
    files = {str(path.relative_to(tmp_path)) for path in (tmp_path / "share").rglob("*") if path.is_file()}
    assert {"share/man/man1/discreet.1", "share/man/man1/discreet-account.1", "share/doc/discreet/LICENSE",
            "share/bash-completion/completions/discreet", "share/zsh/site-functions/_discreet",
            "share/fish/vendor_completions.d/discreet.fish"} <= files
    assert "sampling" in (tmp_path / "share/man/man1/discreet-account.1").read_text()
    script = tmp_path / "share/bash-completion/completions/discreet"
    assert "account" in run("bash", "-c", f"source {script}; complete -p discreet; declare -f")


def test_python_m_discreet_is_the_command():
    out = run(sys.executable, "-m", "discreet", "--version")
    assert out == run(BUILD / "discreet", "--version")
    failed = subprocess.run([sys.executable, "-m", "discreet", "acount"], capture_output=True, text=True)
    assert failed.returncode == 2 and "account" in failed.stderr


def test_private_headers_are_not_installed(tmp_path):
    run("cmake", "--install", BUILD, "--prefix", tmp_path)
    headers = [path.name for path in (tmp_path / "include").rglob("*.h")]
    assert "error.h" in headers
    assert not [name for name in headers if name.endswith(("_impl.h", "_testing.h"))]


@pytest.mark.slow
def test_wheel_carries_package_stubs_and_command(tmp_path):
    # In the same place every time: what has not changed is not compiled.
    run(sys.executable, "-m", "pip", "wheel", ROOT, "--no-deps", "--no-build-isolation",
        "--no-cache-dir", "-w", tmp_path, f"--config-settings=build-dir={BUILD / 'wheel'}", env=os.environ | CACHED)
    (wheel,) = tmp_path.glob("discreet-*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv")
    run(sys.executable, "-m", "pip", "--python", tmp_path / "venv/bin/python", "install",
        "--no-deps", wheel)
    bin_dir = tmp_path / "venv/bin"
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    program = "import discreet, pathlib; at = pathlib.Path(discreet.__file__).parent; " \
              "print(discreet.__version__, *(p.relative_to(at) for p in at.rglob('*.py*')), " \
              "*(p.name for p in at.glob('py.typed')))"
    version, *files = run(bin_dir / "python", "-c", program, env=clean).split()
    assert {"__init__.py", "py.typed", "_core.pyi"} <= set(files)
    own = {str(p.relative_to(ROOT / "python/discreet")) for p in (ROOT / "python/discreet").rglob("*.py")}
    assert "torch/engine.py" in own and own <= set(files)
    assert run(bin_dir / "discreet", "--version").split() == ["discreet", version]


@pytest.mark.slow
def test_core_builds_without_python(tmp_path):
    called = tmp_path / "python-was-called"
    for name in ["python", "python3", "python3.11"]:
        trap = tmp_path / "bin" / name
        trap.parent.mkdir(exist_ok=True)
        trap.write_text(f"#!/bin/sh\necho $0 $@ >> {called}\nexit 127\n")
        trap.chmod(0o755)
    env = os.environ | CACHED | {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}
    env.pop("PYTHONPATH", None)
    run("cmake", "--preset", "core", "-S", ROOT, "-B", tmp_path / "build", cwd=ROOT, env=env)
    run("cmake", "--build", tmp_path / "build", env=env)
    run(tmp_path / "build/discreet", "selfcheck", env=env)
    run("ctest", "--test-dir", tmp_path / "build", "-L", "cpp", "-LE", "slow", env=env)
    assert not called.exists(), called.read_text()
