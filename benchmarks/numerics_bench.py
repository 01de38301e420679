"""Norms against memory copies, the elementary functions against libm, the transform against KissFFT."""

import json
import pathlib
import subprocess

PROGRAM = pathlib.Path(__file__).resolve().parent.parent / "build/benchmarks/numerics_bench"


def run():
    output = subprocess.run(
        [PROGRAM, "--benchmark_format=json", "--benchmark_min_time=0.2", "--benchmark_repetitions=5",
         "--benchmark_report_aggregates_only=true"], check=True, capture_output=True, text=True).stdout
    time = {b["run_name"]: b["real_time"] * 1e-9
            for b in json.loads(output)["benchmarks"] if b["aggregate_name"] == "median"}

    def row(work, ours, peer, theirs, at_least):
        return {"work": work, "ours": time[ours], "peer": peer, "theirs": time[theirs],
                "at_least": at_least}

    return [
        row("norm of 1e7 doubles, 2 threads", "norm/2/real_time", "memcpy of the same array",
            "copy/2/real_time", 0.5),
        *(row(f"{name} of 4096 doubles, 1 thread", f"span_form/{name}", "libm", f"scalar_form/libm_{name}", 1)
          for name in ("exp", "expm1", "log", "log1p", "sin", "cos", "erfc")),
        *(row(f"transform of {n} points and back", f"fft/{n}", "KissFFT", f"kiss_fft/{n}", 1)
          for n in (4096, 65536, 1048576)),
    ]
