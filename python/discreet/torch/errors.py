"""Errors of discreet.torch."""

from __future__ import annotations

from typing import NoReturn

from discreet import errors


def refusal(sentence: str, code: str = "INVALID_DP_CONFIG", op: str = "PrivacyEngine") -> errors.Error:
    return errors.refusal(op, sentence, code)


def refuse(sentence: str, code: str = "INVALID_DP_CONFIG", op: str = "PrivacyEngine") -> NoReturn:
    raise refusal(sentence, code, op)


def layer(name: str) -> str:
    """How a sentence names a submodule; the module itself has the name ""."""
    return f"layer {name}" if name else "the module"
