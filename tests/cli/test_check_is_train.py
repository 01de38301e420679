"""`discreet check` says what `discreet train` does: random configurations, each checked and then trained.

The generator draws every enumerated value of the schema, each in turn as the one that a configuration must have, with a few
others drawn at random beside it. Nothing is filtered by what the commands say of it: both must reject a configuration with the
same status and sentence, or accept it and then agree on epsilon (both ends, every bit), the number of steps, how the run ends,
and the hash of the configuration.
"""

import json
import random
import shutil

import numpy as np
import pytest
import yaml
from command import discreet

ROWS = 120
QUICK, ALL = 48, 330


def enumerated(node, path=""):
    """Every (key, value) that the schema lists, and both values of every switch."""
    for name, below in node["properties"].items():
        at = path + name
        if "properties" in below:
            yield from enumerated(below, at + ".")
            continue
        for choice in [below, *below.get("anyOf", [])]:
            yield from ((at, value) for value in choice.get("enum", []))
            if choice.get("type") == "boolean":
                yield from ((at, value) for value in (False, True))


def pairs():
    schema = json.loads(discreet("check", "--schema").stdout)
    return sorted(enumerated(schema), key=str)


def write_data(folder):
    own = random.Random(3)
    lines = ["x,y,kind,score,class"]
    for _ in range(ROWS):
        right = own.random() < 0.5
        x, y = own.gauss(1 if right else -1, 1), own.gauss(0, 1)
        lines.append(f"{x:.3f},{y:.3f},{own.choice('abc')},{x + y:.3f},{'right' if right else 'left'}")
    (folder / "train.csv").write_text("\n".join(lines) + "\n")
    (folder / "test.csv").write_text("\n".join(lines[:21]) + "\n")
    images = np.random.default_rng(1).integers(0, 256, (ROWS, 8, 8), dtype=np.uint8)
    labels = np.arange(ROWS, dtype=np.uint8) % 3
    np.save(folder / "x.npy", images.reshape(ROWS, 64).astype(np.float32) / 255)
    np.save(folder / "labels.npy", labels)
    (folder / "x.idx").write_bytes(bytes([0, 0, 8, 3]) + b"".join(n.to_bytes(4, "big") for n in (ROWS, 8, 8)) + images.tobytes())
    (folder / "labels.idx").write_bytes(bytes([0, 0, 8, 1]) + ROWS.to_bytes(4, "big") + labels.tobytes())


def data_section(own, form):
    if form == "digits":
        return {"format": form}
    if form == "npy":
        return {"format": form, "train": "x.npy", "train_labels": "labels.npy", "class_count": 3, "bounds": [0, 1],
                "image": [8, 8]}
    if form == "idx":
        return {"format": form, "train": "x.idx", "train_labels": "labels.idx", "class_count": 3}
    out = {"format": form, "train": "train.csv", "label": "class", "classes": ["left", "right"],
           "numeric": {"x": [-4, 4], "y": [-4, 4]}, "categorical": {"kind": ["a", "b", "*"]}}
    if own.random() < 0.3:
        out["test"] = "test.csv"
    elif own.random() < 0.2:
        out["holdout"] = 0.2
    if own.random() < 0.15:
        out["private_bounds"], out["private_bounds_noise"] = ["score"], own.choice([0.5, 1.0])
    if own.random() < 0.06:  # mistakes
        out["numeric" if own.random() < 0.5 else "categorical"] = {"xx": [-4, 4]}
    if own.random() < 0.03:
        out["train"] = "absent.csv"
    return out


LAYERS = ["layer0", "layer0.weight", "layer0.bias", "layer1", "layer1.weight", "default", "nothing"]


def privacy_section(own):
    rows = own.choice([ROWS, ROWS, ROWS + 30, 1600])
    out = {"target_epsilon": own.choice([0.05, 1, 2, 3, 5, 8, 20, 60]), "declared_size": rows,
           "effective_batch_size": own.choice([8, 12, 20, 24, 30]), "noise_multiplier": own.choice([0.6, 0.9, 1.0, 1.3, 2.0]),
           "target_steps": own.choice([1, 7, 20, 30, 40, 60])}
    if own.random() < 0.1:
        out["target_delta"] = own.choice([1e-3, 1e-9, 1e-30, 1e-35])
    if own.random() < 0.05:
        del out["target_steps"]
        out |= {"target_epsilon": 2, "declared_size": ROWS, "noise_multiplier": 0.9}
    if own.random() < 0.05:
        out["declared_size"] = own.choice([ROWS - 1, None])
    if own.random() < 0.1:
        out["gradient_accumulation_steps"] = 2
    if own.random() < 0.1:
        out["safety_budget_reserve"] = own.choice([0, 0.5])
    if own.random() < 0.12:
        out["phases"] = {own.choice(["warmup", "main", "cooldown"]): own.choice(
            [{"steps": 10, "noise_multiplier": 2}, {"steps": 5, "clip_norm": 0.5}, {"steps": 12}])}
    if own.random() < 0.12:
        name = own.choice(["clip_norm_map", "sigma_map", "sensitivity_map"])
        out[name] = {layer: own.choice([0.5, 1, 2]) for layer in own.sample(LAYERS, 2)}
    if own.random() < 0.08:
        out[own.choice(["modules", "groups"])] = {own.choice(LAYERS): own.choice(
            [{"public": True}, {"clip_norm": 0.5}, {"sigma_multiplier": 1.5}])}
    return out


def put(tree, path, value):
    *parents, last = path.split(".")
    for name in parents:
        tree = tree.setdefault(name, {})
        if not isinstance(tree, dict):
            return
    tree[last] = value


def with_companions(own, path, value, tree):
    """What a person who writes this key usually writes with it; left out now and then."""
    put(tree, path, value)
    if own.random() < 0.15:
        return
    privacy = tree["security"]["differential_privacy"]
    key = path.removeprefix("security.differential_privacy.")
    batches = -(-(privacy.get("declared_size") or ROWS) // privacy["effective_batch_size"])
    if key in ("noise.family", "mechanism") and value not in ("gaussian", "laplace"):
        privacy.setdefault("noise", {})["discrete"] = own.choice([2**-10, 2**-6])
        if value in ("discrete_gaussian", "skellam"):
            privacy["accountant"] = "rdp"
    if key in ("noise.family", "mechanism") and value == "skellam":
        privacy["noise_multiplier"] = 4.0
    if key == "noise.compression" and value != "none":
        privacy.setdefault("noise", {})["compression_keep"] = own.choice([0.3, 0.7])
    if key == "sampling_mode" and "TRUNCATED" in value:
        privacy["truncated_batch"] = 2 * privacy["effective_batch_size"]
    if key == "sampling_mode" and ("BALLS" in value or "EPOCH" in value) or key == "subsampling" and "SHUFFLE" in value:
        privacy["target_steps"] = batches * own.choice([1, 2])
        privacy["noise_multiplier"] = 4.0
    if key == "sampling_mode" and "SEQ" in value or key == "subsampling" and value == "NONE":
        privacy["target_steps"] = own.choice([1, 3])
        privacy["noise_multiplier"] = 4.0
    if key == "privacy_allocation" and value == "custom":
        privacy["sigma_map"] = {"layer0": 1.0}
        privacy["clipping"] = {"strategy": "per_layer"}
    if key == "privacy.adaptive_accounting":
        privacy["clipping"] = {"norm": "adaptive", "strategy": own.choice(["per_sample", "hybrid", "per_layer"])}
        privacy["allow_nonprivate_adaptation"] = value == "heuristic"
    if key == "regulated" and value:
        privacy["ghost_bound_hash"] = "a" * 64
    if key == "debug" and value:
        privacy["noise_multiplier"] = own.choice([0, 1.0])
    if key == "clipping.strategy" and value == "ghost":
        privacy["effective_batch_size"] = own.choice([20, privacy["effective_batch_size"]])
    if path == "model.kind" and value == "mlp":
        tree["model"]["hidden"] = [5]
    if path == "model.kind" and value == "linear" and tree["data"]["format"] == "csv":
        tree["data"] |= {"label": "score", "classes": [], "label_bounds": [-5, 5]}
        tree["data"].pop("private_bounds", None)
    if path == "model.features" and value == "fourier":
        tree["model"]["fourier_count"] = 16


def generate(number, choices):
    own = random.Random(number)
    must = choices[number % len(choices)]
    form = must[1] if must[0] == "data.format" else own.choice(["csv", "csv", "csv", "csv", "digits", "npy", "idx"])
    tree = {"security": {"differential_privacy": privacy_section(own)}, "data": data_section(own, form),
            "model": {"kind": "softmax"}, "optimizer": {"rate": 0.5}, "run": {"checkpoint_every": own.choice([0, 7])}}
    if form == "digits":
        tree["security"]["differential_privacy"]["declared_size"] = 1500
    drawn = [must] + [own.choice(choices) for _ in range(own.choice([0, 1, 1, 2, 3]))]
    for path, value in reversed(drawn):
        if path not in ("data.format", "security.differential_privacy.enabled") or path == must[0]:
            with_companions(own, path, value, tree)
    return tree


def compare(folder, number, tree):
    """A sentence if check and train disagree; else none."""
    file = folder / f"{number}.yaml"
    file.write_text(yaml.safe_dump(tree))
    run = folder / f"run{number}"
    checked, trained = discreet("check", str(file), "--json"), discreet("train", str(file), "--out", str(run), "--json",
                                                                      "--threads", "1")
    said = trained.stderr.splitlines()[-1] if trained.returncode else ""
    if checked.returncode or trained.returncode:
        if checked.returncode == trained.returncode and checked.stderr.strip() == said:
            assert not run.exists(), "a run that was never started left files"
            return None, False
        return f"check: {checked.returncode} {checked.stderr}train: {trained.returncode} {said}", False
    plan, done = json.loads(checked.stdout), json.loads(trained.stdout)
    header = json.loads((run / "trace.jsonl").read_text().splitlines()[0])
    shutil.rmtree(run)
    if plan["hash"] != header["config_hash"]:
        return "the hashes differ", True
    if "epsilon_unknown" in plan:
        fits = done["epsilon"]["upper"] <= plan["target_epsilon"] and done["not_private"]
        return None if fits else f"unknown, but {done['epsilon']}", True
    keys = ("epsilon", "steps", "ended", "planned_steps", "delta", "adjacency", "not_private")
    differ = {key: (plan[key], done[key]) for key in keys if plan[key] != done[key]}
    return (str(differ) if differ else None), True


def expect_agreement(folder, numbers):
    write_data(folder)
    choices = pairs()
    differ, accepted = {}, 0
    for number in numbers:
        tree = generate(number, choices)
        tree.pop("corpus", None)  # of its own test, in test_corpus*.py
        sentence, ran = compare(folder, number, tree)
        accepted += ran
        if sentence:
            differ[number] = sentence
    assert not differ, json.dumps(differ, indent=1)
    assert accepted > len(numbers) * 0.4, f"only {accepted} of {len(numbers)} were accepted: the generator tests refusals"
    return accepted


def test_check_and_train_agree(tmp_path):
    expect_agreement(tmp_path, range(0, ALL, ALL // QUICK + 1))


@pytest.mark.slow
def test_check_and_train_agree_on_every_enumerated_value(tmp_path):
    """330 configurations, each of the schema's enumerated values at least twice."""
    accepted = expect_agreement(tmp_path, range(ALL))
    print(f"{ALL} configurations, {accepted} accepted by both, {ALL - accepted} rejected by both in the same words")
