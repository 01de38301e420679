"""Judges random architectures, or the zoo, and summarises the results.

    python tests/boundary/falsify.py --seeds 0:5000 [--jobs 2] [--out verdicts.jsonl]
    python tests/boundary/falsify.py --zoo

Every verdict is one line of --out; seeds that are in it already are not run again, so a run that was stopped continues.
A case that ends its process (a segmentation fault) is a crash of that case, and the others continue. The exit code is 1 if an
accepted case is not exact or moves by more than it may, or if anything crashed; honest ones that are rejected are listed.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import pathlib
import sys
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import architectures  # noqa: E402
import torch  # noqa: E402
from oracle import Verdict, judge  # noqa: E402

ZOO_RECORDS = 8


def judged(key) -> dict:
    """The verdict on a seed, or on a name of the zoo."""
    if isinstance(key, int):
        case, n, planted = architectures.draw(key)
        memory = planted in ("A1", "A5") or key % 8 == 0
    else:
        case, planted = zoo()[key]
        n, memory = case.size or ZOO_RECORDS, planted.startswith("memory")
    verdict = judge(case, n, memory=memory)
    return {"key": key, "planted": planted, "n": n, "dtype": "autocast" if case.autocast else str(case.dtype)[6:],
            "rejected": verdict.rejected, "crashed": verdict.crashed, "away": verdict.away, "move": verdict.move,
            "memory": verdict.memory, "faults": list(verdict.faults)}


def zoo() -> dict:
    import zoo_couplings
    import zoo_honest
    import zoo_memories
    out = {case.name: (case, "coupling") for case in zoo_couplings.cases()}
    out |= {case.name: (case, "memory") for case in zoo_memories.cases()}
    return out | {"honest_" + case.name: (case, "") for case in zoo_honest.cases()}


def work(keys: list, path: pathlib.Path) -> None:
    """In a child process that may die: another one continues after the case that killed it."""
    while keys:
        pid = os.fork()
        if pid == 0:
            torch.set_num_threads(1)
            warnings.simplefilter("ignore")
            with open(path, "a") as out:
                for key in keys:
                    out.write(json.dumps(judged(key)) + "\n")
                    out.flush()
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        done = {line["key"] for line in read(path)}
        left = [key for key in keys if key not in done]
        if status == 0:
            break
        if left:
            crash = Verdict("", crashed=f"the process ended with status {status}")
            planted = architectures.draw(left[0])[2] if isinstance(left[0], int) else zoo()[left[0]][1]
            with open(path, "a") as out:
                out.write(json.dumps({"key": left[0], "planted": planted, "n": 0, "dtype": "", "rejected": "",
                                      "crashed": crash.crashed, "away": 0, "move": 0, "memory": 0, "faults": []}) + "\n")
        keys = left[1:]


def read(path: pathlib.Path) -> list[dict]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]


def run(keys: list, jobs: int, path: pathlib.Path) -> list[dict]:
    """The verdicts of these keys, in order. path: where they are kept, one file a job."""
    parts = [path.with_name(f"{path.name}.{job}") for job in range(jobs)]
    done = {line["key"]: line for line in read(path)}
    for part in parts:
        done |= {line["key"]: line for line in read(part)}
    keys_left = [key for key in keys if key not in done]
    children = []
    for job in range(jobs):
        pid = os.fork()
        if pid == 0:
            try:
                work(keys_left[job::jobs], parts[job])
            finally:
                os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)
    for part in parts:
        done |= {line["key"]: line for line in read(part)}
        part.unlink(missing_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in done.values()))
    return [done[key] for key in keys if key in done]


def summary(lines: list[dict]) -> str:
    accepted = [x for x in lines if not x["rejected"] and not x["crashed"]]
    worst = {dtype: max((x["move"] for x in accepted if x["dtype"] == dtype), default=0.0)
             for dtype in sorted({x["dtype"] for x in accepted})}
    return (f"{len(lines)} cases: {len(accepted)} accepted ({sum(not x['planted'] for x in accepted)} honest), "
            f"{sum(bool(x['rejected']) for x in lines)} rejected ({len(alarms(lines))} honest), "
            f"{sum(bool(x['crashed']) for x in lines)} crashed; {sum(bool(x['faults']) for x in accepted)} accepted and wrong; "
            f"worst move {', '.join(f'{k} 1{v - 1:+.2g}' for k, v in worst.items())}")


def wrong(lines: list[dict]) -> list[dict]:
    """Accepted and wrong, or ended by an exception that is not a rejection. In the zoo a coupling that is accepted is wrong in
    any case, but for those that can mix nothing."""
    harmless = {f"{name}_below_root" for name in architectures.zoo.harmless_below_root}
    return [x for x in lines if x["crashed"] or not x["rejected"] and (
        x["faults"] or x["planted"] and not isinstance(x["key"], int) and x["key"] not in harmless)]


def alarms(lines: list[dict]) -> list[dict]:
    """Honest and rejected."""
    return [x for x in lines if x["rejected"] and not x["planted"]]


def listed(lines: list[dict]) -> str:
    return "".join(f"{x['key']} [{x['planted'] or 'honest'}, n {x['n']}, {x['dtype']}]: "
                   f"{(x['crashed'] or x['rejected'] or '; '.join(x['faults']) or 'accepted')[:300]}\n" for x in lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="0:100", help="first:end")
    parser.add_argument("--zoo", action="store_true", help="the zoo in place of seeds")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/falsifier.jsonl"))
    given = parser.parse_args()
    keys = list(zoo()) if given.zoo else list(range(*map(int, given.seeds.split(":"))))
    lines = run(keys, given.jobs, given.out)
    print(listed(wrong(lines) + alarms(lines)), end="")
    reasons = collections.Counter((x["planted"] or "honest", "crashed" if x["crashed"] else "rejected" if x["rejected"] else
                                   "wrong" if x["faults"] else "accepted") for x in lines)
    for (planted, what), count in sorted(reasons.items()):
        print(f"  {planted:8} {what:8} {count}")
    print(summary(lines))
    return 1 if wrong(lines) else 0


if __name__ == "__main__":
    sys.exit(main())
