"""A run directory as training leaves it, with made-up numbers."""

import hashlib
import json
import math

from command import discreet

CONFIG = """security:
  differential_privacy:
    target_epsilon: 3
    declared_size: 6000
    effective_batch_size: 600
    noise_multiplier: {noise}
    target_steps: {planned}
    secure: {secure}
"""


def write(folder, steps=300, planned=300, secure=True, data=0.0, ended="completed"):
    """`data` changes what depends on the data, and nothing else. `ended` "" writes no last line."""
    folder.mkdir(parents=True)
    given = folder / "config.yaml"
    noise = math.ceil(4 * math.sqrt(max(planned, 300) / 300))  # spends less than the lines below say
    given.write_text(CONFIG.format(planned=planned, secure=str(secure).lower(), noise=noise), "utf-8")
    checked = json.loads(discreet("check", str(given), "--json").stdout)
    given.write_text(discreet("check", str(given), "--resolved").stdout, "utf-8")

    def epsilon(step):
        return 2.7 * math.sqrt(step / planned)

    lines = [{"kind": "run_header", "confidential": True, "config_hash": checked["hash"],
              "layout_hash": "a" * 64, "accounted_delta": 1e-05, "allocation_map": {"all": [1.0, 1.0]}, "not_private": checked["not_private"],
              "specification": "UML_OS.DifferentialPrivacy.Apply_v3 2026-02-18"}]
    for t in range(steps):
        wave = math.sin(1.7 * t) * math.cos(0.013 * t * t) + data
        lines.append({"kind": "iter", "t": t, "cumulative_epsilon_before": epsilon(t),
                      "cumulative_epsilon_after": epsilon(t + 1), "noise_scale_sigma": noise,
                      "effective_noise_multiplier": noise,
                      "norm_p50": 2 + 0.3 * wave, "norm_p95": 4 + 0.8 * wave,
                      "clip_fraction": 0.7 + 0.1 * math.sin(wave), "zeroed_records": 0})
        if (t + 1) % 10 == 0:
            far = math.exp(-(t + 1) / planned * 4)
            lines.append({"kind": "evaluation", "t": t + 1, "epoch": (t + 1) // 10,
                          "train_loss": 0.2 + 2 * far, "train_accuracy": 0.96 - 0.8 * far,
                          "test_loss": 0.26 + 2 * far, "test_accuracy": 0.94 - 0.8 * far,
                          "rate": 0.5})
    if ended:
        upper = epsilon(planned if ended == "interrupted" else steps)
        lines.append({"kind": "run_end", "t": steps, "steps": steps, "planned_steps": planned,
                      "epsilon": {"lower": upper * 0.9999, "upper": upper}, "delta": 1e-05,
                      "adjacency": "add_remove", "ended": ended, "accuracy": 0.9312 + data / 100})
    prev = "0" * 64
    with open(folder / "trace.jsonl", "w", encoding="utf-8") as trace:
        for line in lines:
            text = json.dumps(line | {"prev": prev}, sort_keys=True, separators=(",", ":"))
            prev = hashlib.sha256(text.encode()).hexdigest()
            trace.write(text + "\n")
    return prev
