#!/usr/bin/env python3
"""How deep the fuzzers reach into each parser of bytes that others write.

    tools/fuzz_reach.py [FUZZER…]      reads the inputs that tests/fuzz/run kept in build/fuzz/corpus

Prints a row per parser, and with a fuzzer's name also the functions of its parsers that no input enters. tools/check_all.py
keeps the rows in docs/internals/checks.md.
"""

import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Parser, fuzzer, the sources that read the format. What these share (JSON, hexadecimal, files) is not counted again.
PARSERS = [
    ("CBOR", "cbor", "base/cbor_codec.cpp"),
    ("YAML", "config", "base/yaml.cpp"),
    ("configurations", "config", "config/config_read.cpp config/config_value.cpp"),
    ("COSE", "admission", "admission/cose.cpp"),
    ("descriptors", "admission", "admission/descriptor.cpp"),
    ("policies", "admission", "admission/policy_read.cpp admission/profile.cpp"),
    ("statements", "admission", "admission/statement.cpp admission/anchor_file.cpp"),
    ("ledger entries", "ledger", "ledger/entry.cpp"),
    ("notes", "ledger", "ledger/note.cpp"),
    ("proofs", "ledger", "ledger/proof.cpp"),
    ("bundles", "ledger", "ledger/withdrawal.cpp"),
    ("receipts", "ledger", "ledger/receipt.cpp"),
    ("SQLite rows of a ledger", "ledger_file", "ledger/store.cpp ledger/opening.cpp ledger/verify.cpp ledger/state.cpp"),
    ("SQLite rows of uses", "store", "admission/uses.cpp"),
    ("unlearning stores", "store", "unlearning/service/store_impl.cpp"),
    ("saved learners", "state", "unlearning/service/learner_impl.cpp"),
    ("saved accountants", "state", "accounting/tally_impl.cpp accounting/event_cbor.cpp accounting/filter_cbor.cpp"),
    ("traces", "run", "run/trace.cpp run/recount.cpp"),
    ("checkpoints", "run", "run/checkpoint.cpp mechanism/step/apply_state.cpp"),
    ("CSV", "data", "data/csv.cpp data/csv_rows.cpp data/input.cpp"),
    ("IDX and NumPy", "data", "data/arrays.cpp"),
    ("safetensors", "data", "training/safetensors.cpp"),
    ("manifests", "release", "release/manifest_json.cpp release/envelope.cpp"),
    ("requests", "release", "release/request.cpp"),
    ("JSON schedules", "schedule", "cli/budget/schedule.cpp"),
]


def functions(fuzzer):
    """(file, function, edges reached, edges) of every function, over all inputs that the fuzzer has."""
    inputs = [folder for folder in (f"build/fuzz/corpus/{fuzzer}", f"tests/fuzz/corpus/{fuzzer}") if (ROOT / folder).is_dir()]
    program = f"build/fuzz/tests/fuzz/{fuzzer}_fuzz"
    done = subprocess.run([program, "-runs=0", "-print_coverage=1", "-rss_limit_mb=4096", *inputs], cwd=ROOT,
                          capture_output=True, text=True, errors="replace",
                          env=os.environ | {"ASAN_SYMBOLIZER_PATH": "/usr/bin/llvm-symbolizer-14"})
    row = re.compile(r"^(?:UN)?COVERED_FUNC: hits: \d+ edges: (\d+)/(\d+) (.*) (\S+?):\d+(?::\d+)?$", re.M)
    return [(place, name, int(reached), int(edges)) for reached, edges, name, place in row.findall(done.stdout + done.stderr)]


def reach(fuzzer):
    """(parser, sources, edges reached, edges, functions never entered) of each parser that this fuzzer is for."""
    found = functions(fuzzer)
    for parser, by, sources in PARSERS:
        if by == fuzzer:
            mine = [f for f in found for source in sources.split() if f[0].endswith("/" + source)]
            unseen = sorted(((f[3], f[1]) for f in mine if f[2] == 0), reverse=True)
            yield parser, sources, sum(f[2] for f in mine), sum(f[3] for f in mine), unseen


def main(fuzzers):
    for fuzzer in fuzzers or dict.fromkeys(fuzzer for _, fuzzer, _ in PARSERS):
        for parser, _, reached, edges, unseen in reach(fuzzer):
            print(f"{parser}: {fuzzer}, {reached} of {edges} edges, {100 * reached / max(edges, 1):.0f}%")
            for count, name in unseen if fuzzers else ():
                print(f"    never entered, {count} edges: {name[:160]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
