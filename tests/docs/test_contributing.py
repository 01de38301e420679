"""CONTRIBUTING.md states the version rules of the specification (0.J and VIII.B)."""

import pathlib

RULES = " ".join((pathlib.Path(__file__).parents[2] / "CONTRIBUTING.md").read_text("utf-8").split())


def sentence_with(words):
    found = [s for s in RULES.replace("- ", "").split(". ") if words in s]
    assert len(found) == 1, found
    return found[0]


def test_a_change_of_accountant_or_clipping_bumps_major():
    rule = sentence_with("bumps MAJOR")
    assert "accountant" in rule and "algorithm" in rule and "clipping strategy" in rule


def test_a_new_scheduler_mode_bumps_minor():
    assert "scheduler mode" in sentence_with("bumps MINOR")


def test_the_allowed_refactors_are_listed():
    rule = sentence_with("keep the version of the operator")
    for refactor in ("numeric stabilisation of an accountant", "fusing a clipping kernel",
                     "order of its sums", "faster scheduler with the same modes"):
        assert refactor in rule, refactor
    assert "manifest is updated" in sentence_with("replaced by a new one with a higher version")
