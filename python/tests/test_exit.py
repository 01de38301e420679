"""A process ends normally, whatever its daemon threads do in the core."""

import subprocess
import sys

import pytest

LOOPS = {
    "arrays": """
rows = {"w": numpy.ones((20000, 64))}
def work():
    discreet.clip(rows, 1.0)
""",
    "accounting": """
def work():
    amplification.truncated_poisson_epsilon(sampling_rate=0.01, batch=20, population=1000, noise_multiplier=1.0, steps=100,
                                            delta=1e-5)
""",
    "session": """
mechanism = discreet.Mechanism({"security": {"differential_privacy": {
    "noise_multiplier": 1.0, "clipping": {"norm": 1.0}, "effective_batch_size": 10, "declared_size": 100,
    "target_epsilon": 50, "target_delta": 1e-5}}}, {"w": (64,)})
rows = {"w": numpy.ones((2000, 64))}
def work():
    try:
        mechanism.accumulate(rows)
    except discreet.Error:
        pass
"""}


@pytest.mark.parametrize("loop", LOOPS)
def test_daemon_threads_in_the_core_do_not_abort_the_process(loop):
    program = f"""
import threading, time
import numpy
import discreet
from discreet import amplification
{LOOPS[loop]}
def loop():
    while True:
        work()
work()
for _ in range(4):
    threading.Thread(target=loop, daemon=True).start()
time.sleep(0.3)
"""
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
        assert (done.returncode, done.stderr) == (0, "")
