#!/usr/bin/env python3
"""Prints docs/reference/errors.md: the codes of discreet/base/error.h, with remedies.

    tools/docs/errors.py > docs/reference/errors.md
"""

import pathlib
import re
import sys

HEADER = pathlib.Path(__file__).resolve().parents[2] / "discreet" / "base" / "error.h"
REMEDIES = {
    "PRIVACY_BUDGET_EXCEEDED": "Raise `target_epsilon`, add noise, or plan fewer steps; `discreet plan` shows what fits",
    "INVALID_GRADIENT": "Find the NaN, infinity or wrong shape in the named tensor; `nonfinite: zero` leaves out such records",
    "NAN_IN_SIGMA": "Check noise multipliers, `sigma_map` and schedules for values that are not finite",
    "ACCOUNTANT_OVERFLOW": "Add noise or take fewer steps; for very long runs use `rdp` with `log_space_accounting: true`",
    "ACCOUNTANT_DIVERGENCE": "Report it as a vulnerability, with the setting (SECURITY.md); run `discreet selfcheck`",
    "RNG_CONSUMPTION_VIOLATION":
        "Create generators, samplers and mechanisms in the process that uses them, not before `fork()`",
    "INVALID_DP_CONFIG":
        "Change the named key; `discreet check` repeats the check, the configuration reference lists every key",
    "INVALID_INPUT": "Change the named argument, file or array",
    "MALFORMED": "The file is damaged, altered or from another tool: restore it, or obtain it again from its author",
    "IO_ERROR": "Free disk space or memory, or fix permissions; then repeat the command, with `--resume` for a run",
}
ADMISSION = {
    "NO_ATTESTATION": "Attest the contribution with `discreet attest`",
    "MALFORMED": "Attest again: the descriptor or signature has a wrong form",
    "UNTRUSTED_KEY": "Name the key under `keys` in the policy, or rotate it from a trusted key",
    "REVOKED_KEY": "Attest again with a key that is not revoked",
    "BAD_SIGNATURE": "Attest again: the descriptor differs from what was signed",
    "UNKNOWN_CLASS": "Use a class of the policy that the key may attest",
    "OUTSIDE_VALIDITY": "Attest again with a window that covers the epoch, within `most_validity_days`",
    "BELOW_FLOOR": "Declare a bound within the floors and the class of the policy",
    "WITHDRAWN": "None: the contribution was withdrawn",
    "USES_EXHAUSTED": "None: all k uses are spent. This reason is confidential",
    "OTHER_CORPUS": "Attest for this corpus, or list an old descriptor under `accept_unbound`",
    "DUPLICATE": "Remove the second contribution of the same payload by this contributor",
}
TEMPLATE = """# Errors

<!-- Written by tools/docs/errors.py from discreet/base/error.h; do not edit. -->

An error has a code, the operation that failed, and a sentence: what was expected, what was found, what to do. C++ throws
`discreet::Error`, Python raises `discreet.Error`. After an error every object is as it was before the call. The spelling of
codes never changes.

The command prints `error: CODE: …` and ends with status 1 (`PRIVACY_BUDGET_EXCEEDED`), 3 (`IO_ERROR`) or 2 (all others).
`release`, `report` and `trace` end with status 1 where a run's records contradict themselves.

| code | meaning | what to do |
|---|---|---|
{codes}

## Reasons of the admission gate

`discreet admit` names the first that applies, in this order:

| reason | what to do |
|---|---|
{admission}

## Reasons of the inference gate

[Release and the inference gate](../concepts/release.md#reasons-for-denial) lists them, with their order.
"""


def spelling(name):
    """kInvalidInput → INVALID_INPUT"""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name.removeprefix("k")).upper()


def page():
    body = re.search(r"enum class ErrorCode \{(.*?)\n\};", HEADER.read_text("utf-8"), re.S)[1]
    meanings = {spelling(name): " ".join(re.sub(r"\n\s*//", "", text).split())
                for name, text in re.findall(r"^\s*(k\w+),\s*//\s*(.*(?:\n\s*//.*)*)", body, re.M)}
    if meanings.keys() != REMEDIES.keys():
        different = ", ".join(sorted(meanings.keys() ^ REMEDIES.keys()))
        sys.exit(f"errors: remedies and codes differ: {different}; edit tools/docs/errors.py")
    codes = "\n".join(f"| `{code}` | {meaning} | {REMEDIES[code]} |" for code, meaning in meanings.items())
    admission = "\n".join(f"| `{reason}` | {remedy} |" for reason, remedy in ADMISSION.items())
    return TEMPLATE.format(codes=codes, admission=admission)


if __name__ == "__main__":
    print(page(), end="")
