"""Ghost and fused clipping against the plain batched gradient by OpenBLAS; their memory against explicit gradients."""

import json
import pathlib
import subprocess

PROGRAM = pathlib.Path(__file__).resolve().parent.parent / "build/benchmarks/ghost_bench"


def memory_growth(how):
    """Bytes of peak memory per record, from batches of 16 and 64."""
    small, large = (int(subprocess.run([PROGRAM, "memory", how, str(batch)], check=True, capture_output=True).stdout)
                    for batch in (16, 64))
    return (large - small) / 48


def run():
    output = subprocess.run(
        [PROGRAM, "--benchmark_format=json", "--benchmark_filter=plain|/128/", "--benchmark_min_time=0.1",
         "--benchmark_repetitions=35",  # on a shared machine a processor may be gone for a second
         "--benchmark_enable_random_interleaving=true", "--benchmark_report_aggregates_only=true"],
        check=True, capture_output=True, text=True).stdout
    time = {b["run_name"]: b["real_time"] * 1e-9
            for b in json.loads(output)["benchmarks"] if b["aggregate_name"] == "median"}
    explicit = memory_growth("explicit")
    for how in ("ghost", "fused"):  # no buffer grows with batch x parameters: at most 1/100 of it
        assert memory_growth(how) * 100 < explicit, how
    return [{"work": f"{how} clipping, 4 dense layers of 1024, batch 256, {threads} threads",
             "ours": time[f"{how}/{threads}/128/real_time"], "peer": "OpenBLAS sgemm, unclipped",
             "theirs": time[f"plain/{threads}/real_time"], "at_least": 0.87}
            for how in ("ghost", "fused") for threads in (1, 2)]
