"""The exception of the package."""

from __future__ import annotations

from typing import NoReturn


class Error(ValueError):
    """Ends an operation. Every object involved has the state it had before the call.

    It is also a ValueError, so that code which handles invalid arguments handles it too.

    code: the reason in capitals, such as "INVALID_DP_CONFIG"; its spelling never changes.
    op: the operator or function that failed.
    sentence: what was expected, what was found and what to do.

        try:
            discreet.account(sampling_rate=2, noise_multiplier=1, steps=10, delta=1e-5)
        except discreet.Error as error:
            print(error.code, error.sentence)
    """

    code: str
    op: str
    sentence: str


def refusal(op: str, sentence: str, code: str = "INVALID_DP_CONFIG") -> Error:
    """The Error for a failed operation."""
    error = Error(f"{code}: {op}: {sentence}")
    error.code, error.op, error.sentence = code, op, sentence
    return error


def refuse(op: str, sentence: str, code: str = "INVALID_DP_CONFIG") -> NoReturn:
    raise refusal(op, sentence, code)
