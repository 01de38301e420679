"""The guide to governed corpora: from data to a withdrawal in 8 commands and one file. test_documents.py executes it."""

import pathlib
import re

GUIDE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "guides" / "governed-corpora.md"


def test_a_corpus_of_your_own_takes_eight_commands_and_one_file():
    path, _, rest = GUIDE.read_text().partition("## When the contributor signs")
    assert rest, "the heading that ends the path"
    commands = [line for block in re.findall(r"^```console\n(.*?)^```", path, re.M | re.S)
                for line in block.splitlines() if line.startswith("$ ")]
    assert all(re.match(r"\$ discreet [^;|&]*$", line) for line in commands), commands  # one command a line, and no other tool
    assert len(commands) <= 8 and {line.split()[2] for line in commands} == {
        "keygen", "policy", "attest", "admit", "train", "ledger", "withdraw"}
    assert re.findall(r'title="([^"]*)"', path) == ["train.yaml"]
    assert len(re.findall(r"^```python\n", path, re.M)) == 1  # the data
