"""A training run small enough to be killed many times."""

import os
import pathlib
import random
import shutil
import subprocess

FILES = ["config.yaml", "trace.jsonl", "model.safetensors", "checkpoint.cbor"]

CONFIG = """
data:
  format: csv
  train: train.csv
  test: test.csv
  label: class
  classes: [left, right]
  numeric: {x: [-4, 4], y: [-4, 4]}
model:
  kind: mlp
  hidden: [48]
optimizer: {rate: 0.5, momentum: 0.5, average: 0.9}
run: {checkpoint_every: 7}
security:
  differential_privacy:
    accountant: rdp
    target_epsilon: 50
    target_steps: 150
    declared_size: 400
    effective_batch_size: 40
    noise_multiplier: 1
    clipping: {norm: 1, ghost: true}
"""


def write_csv(path, rows, seed):
    draw = random.Random(seed)
    lines = ["x,y,class"]
    for i in range(rows):
        right = i % 2
        lines.append(f"{(1 if right else -1) + draw.gauss(0, 0.5):.4f},{draw.gauss(0, 1):.4f},"
                     f"{'right' if right else 'left'}")
    path.write_text("\n".join(lines) + "\n")


class Small:
    """A folder with data and configuration; runs are folders inside it."""

    def __init__(self, folder: pathlib.Path, config=CONFIG):
        self.folder = folder
        write_csv(folder / "train.csv", 400, 1)
        write_csv(folder / "test.csv", 100, 2)
        (folder / "train.yaml").write_text(config)

    def command(self, name, *args):
        return [os.environ["DISCREET"], "train", str(self.folder / "train.yaml"),
                "--out", str(self.folder / name), "--threads", "1", *args]

    def train(self, name, *args, **kwargs):
        return subprocess.run(self.command(name, *args), capture_output=True, text=True, **kwargs)

    def start(self, name, *args):
        return subprocess.Popen(self.command(name, *args), stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL)

    def share_secret(self, source, name):
        """A run that has not started and will draw the same noise as `source`."""
        (self.folder / name).mkdir()
        shutil.copy(self.folder / source / "secret.key", self.folder / name / "secret.key")

    def bytes_of(self, name):
        return {file: (self.folder / name / file).read_bytes() for file in FILES}
