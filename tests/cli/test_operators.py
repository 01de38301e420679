"""`discreet operators`: the specification's manifest, mapped to code."""

import json
import pathlib
import re

from command import discreet

ROOT = pathlib.Path(__file__).parents[2]


def test_json_maps_every_operator_to_a_function_of_an_existing_header():
    result = discreet("operators", "--json")
    assert result.returncode == 0
    rows = json.loads(result.stdout)["operators"]
    assert len({row["name"] for row in rows}) == 25 == len({row["definition"] for row in rows})
    for row in rows:
        assert re.fullmatch(r"UML_OS\.(DifferentialPrivacy|Error)\.[A-Za-z.]+_v\d", row["name"])
        assert re.fullmatch(r"\(.+ -> .+\)", row["signature"])
        assert row["category"] in ("Security", "DifferentialPrivacy", "Error") and row["purity"] in ("PURE", "STATEFUL")
        assert "deterministic" in row["determinism"] or "stochastic" in row["determinism"]
        assert re.fullmatch(r"[A-Z].{20,}[^.]\.", row["definition"])
        name = row["function"].rsplit("::", 1)[1]
        assert f"{name}(" in (ROOT / row["module"]).read_text(encoding="utf-8"), row["name"]


def test_the_table_for_people_names_operator_function_and_header():
    lines = discreet("operators").stdout.splitlines()
    at = lines.index("UML_OS.DifferentialPrivacy.Apply_v3")
    assert lines[at + 1].startswith("  Clips, accounts, adds noise")
    assert lines[at + 2] == "  (gradients, dp_config, t -> noisy_gradients, updated_budget, dp_metrics)"
    assert lines[at + 4] == "  discreet::mechanism::Mechanism::apply in discreet/mechanism/step/apply.h"
