"""A core dump of a process with a live private run holds none of its keys.

The dump is what the kernel would write of the memory that was written: every mapping of the process but those marked "dd" in
/proc/PID/smaps. It is read from outside, so that nothing of the search is in it."""

import hashlib
import hmac
import pathlib
import re
import subprocess
import sys

import pytest

pytest.importorskip("torch")

KEY = hashlib.sha256(b"a key of this test").digest()
YAML = ("security: {differential_privacy: {declared_size: 1000, effective_batch_size: 8, noise_multiplier: 4.0, "
        "target_epsilon: 8, target_delta: 1.0e-5, target_steps: 10}}\nrun: {compute_dtype: float32}")

RUN = """
import sys, torch
from torch import nn
from discreet.torch import PrivacyEngine
data = torch.utils.data.TensorDataset(torch.randn(64, 3), torch.randint(0, 2, (64,)))
module = nn.Linear(3, 2)
engine = PrivacyEngine(directory=sys.argv[1])
module, optimizer, loader = engine.make_private(
    module=module, optimizer=torch.optim.SGD(module.parameters(), 0.1),
    data_loader=torch.utils.data.DataLoader(data, batch_size=8, shuffle=True),
    noise_multiplier=4.0, epochs=4, max_grad_norm=1.0, target_epsilon=8, target_delta=1e-5)
for x, y in loader:
    optimizer.zero_grad()
    nn.functional.cross_entropy(module(x), y).backward()
    optimizer.step()
"""

# The key itself comes from Python, which keeps its own copy; what is derived from it is the core's alone.
MECHANISM = f"""
import hashlib, torch
from discreet import _core
key = hashlib.sha256(b"a key of this test").digest()
session = _core.MechanismSession({YAML.encode()!r}, "test", [], [("a.weight", [100_000], "a", "a", True, "")],
                                 key, None, 2)
sampler = session.sampler(1000)
for step in range(3):
    norms = torch.ones(4, 1, dtype=torch.float64)
    session.take_norms(norms, torch.empty_like(norms), 4, None)
    session.release_into([torch.zeros(100_000, dtype=torch.float64)], [torch.zeros(100_000)], False)
"""

HOLD = "\nimport sys\nprint('ready', flush=True)\nsys.stdin.read()\n"


def dump(process) -> tuple[bytes, int]:
    """What a core dump would hold, and how many bytes it would leave out."""
    out, left_out, mapping = [], 0, None
    with open(f"/proc/{process.pid}/mem", "rb", buffering=0) as memory:
        for line in pathlib.Path(f"/proc/{process.pid}/smaps").read_text().splitlines():
            if found := re.match(r"([0-9a-f]+)-([0-9a-f]+) (\S+) ", line):
                mapping = int(found[1], 16), int(found[2], 16), found[3]
            elif line.startswith("VmFlags:") and mapping[2].startswith("rw"):
                begin, end, _ = mapping
                if " dd" in line:
                    left_out += end - begin
                    continue
                try:
                    memory.seek(begin)
                    out.append(memory.read(end - begin))
                except OSError:  # of the kernel
                    pass
    return b"\n".join(out), left_out


def dump_of(script: str, *arguments: str) -> tuple[bytes, int]:
    with subprocess.Popen([sys.executable, "-c", script + HOLD, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as process:
        assert process.stdout.readline() == "ready\n"
        return dump(process)


def derived(key: bytes, name: str) -> bytes:
    return hmac.new(key, f"discreet/stream/1/{name}\x01".encode(), hashlib.sha256).digest()


def halves(key: bytes):
    """AES-128 uses the first half of a key; ChaCha20 all of it."""
    return key[:16], key[16:]


def test_the_secret_of_a_run_is_not_in_a_core_dump(tmp_path):
    memory, left_out = dump_of(RUN, str(tmp_path / "run"))
    digits = (tmp_path / "run" / "secret.key").read_text().split()[1]
    assert b"make_private" in memory and left_out >= 1 << 20
    for needle in (digits.encode(), digits[:32].encode(), *halves(bytes.fromhex(digits))):
        assert needle not in memory


def test_keys_of_noise_and_sampling_are_not_in_a_core_dump():
    memory, _ = dump_of(MECHANISM)
    assert KEY in memory  # Python's own copy: the search finds what is there
    for stream in ("noise", "sampling", "compression"):
        for needle in halves(derived(KEY, stream)):
            assert needle not in memory, stream
