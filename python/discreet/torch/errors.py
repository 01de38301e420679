"""Refusals of discreet.torch."""

from __future__ import annotations

from typing import NoReturn

from discreet.errors import Error


def refusal(sentence: str, code: str = "INVALID_DP_CONFIG", op: str = "PrivacyEngine") -> Error:
    error = Error(f"{code}: {op}: {sentence}")
    error.code, error.op, error.sentence = code, op, sentence
    return error


def refuse(sentence: str, code: str = "INVALID_DP_CONFIG", op: str = "PrivacyEngine") -> NoReturn:
    raise refusal(sentence, code, op)
