"""`discreet operators`: the specification's manifest, mapped to code."""

import json
import pathlib

from command import discreet

ROOT = pathlib.Path(__file__).parents[2]


def test_json_maps_every_operator_to_a_function_of_an_existing_header():
    result = discreet("operators", "--json")
    assert result.returncode == 0
    rows = json.loads(result.stdout)["operators"]
    assert len({row["name"] for row in rows}) == 25
    for row in rows:
        name = row["function"].rsplit("::", 1)[1]
        assert f"{name}(" in (ROOT / row["module"]).read_text(encoding="utf-8"), row["name"]


def test_the_table_for_people_names_operator_function_and_header():
    lines = discreet("operators").stdout.splitlines()
    at = lines.index("UML_OS.DifferentialPrivacy.Apply_v3")
    assert lines[at + 1] == "  (gradients, dp_config, t -> noisy_gradients, updated_budget, dp_metrics)"
    assert lines[at + 3] == "  discreet::mechanism::Mechanism::apply in discreet/mechanism/step/apply.h"
