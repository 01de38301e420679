"""Private training: from a configuration and files, or from arrays and data frames.

    >>> import discreet
    >>> run = discreet.train("train.yaml", "churn")             # doctest: +SKIP
    >>> run.epsilon.upper, run.model["layer0.weight"].shape     # doctest: +SKIP

    >>> run = discreet.train(X, y, target_epsilon=3, target_delta=1e-5, bounds=(0, 100), classes=[0, 1])  # doctest: +SKIP
    >>> run.predict(X_new), run.report()                        # doctest: +SKIP
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import pathlib
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from discreet import _core, arrays
from discreet.accounting import Interval
from discreet.mechanism import _settings, _text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Run", "open_run", "train"]

_PRIVACY = "security.differential_privacy."


class _Scratch:
    """A folder with mode 0700 that is removed together with this object."""

    def __init__(self) -> None:
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="discreet-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


@dataclasses.dataclass(frozen=True)
class Run:
    """A finished run. Of its files, `trace` is confidential, and secret.key must stay secret."""

    directory: pathlib.Path
    epsilon: Interval | None  # the claim for everything released; None if nothing is claimed
    delta: float
    adjacency: str
    accuracy: float | None  # of held-out records, which have no guarantee
    loss: float | None
    steps: int
    planned_steps: int | None
    seconds: float | None  # of the training process; None for a run that was opened
    ended: str  # "completed", "budget_reached" or "interrupted"
    not_private: list[str]  # why the run is not private; empty if it is private
    notes: list[str]  # sentences for the user
    released: dict[str, Any] | None  # under metrics.release: dp, the values of the last step: noised, covered by epsilon
    _scratch: _Scratch | None = dataclasses.field(default=None, repr=False, compare=False)

    @property
    def model(self) -> dict[str, NDArray[np.float32]]:
        """The released weights: name → NumPy array, float32."""
        return _core.read_model(self.directory / "model.safetensors")

    @property
    def trace(self) -> list[dict[str, Any]]:
        """The log of the run, line by line. Confidential: it contains values without noise."""
        text = (self.directory / "trace.jsonl").read_text("utf-8")
        return [json.loads(line) for line in text.splitlines()]

    @functools.cached_property
    def predictor(self) -> Predictor:
        """The trained model; it does not need the run's directory or key."""
        return Predictor(_core.Model.load(self.directory))

    def predict(self, X: Any) -> Any:
        """The predicted class or number of each record.

        X: a data frame with the columns of the training data, or an array of these columns in the same order. Values are scaled
        by the declared or released bounds, as in training. Classes are integers if all of them are; otherwise they are words.
        """
        return self.predictor.predict(X)

    def predict_proba(self, X: Any) -> Any:
        """The probability of each class, in the order of `predictor.classes`: an array [records, classes]."""
        return self.predictor.predict_proba(X)

    def report(self, path: str | os.PathLike[str] | None = None, public: bool = False) -> pathlib.Path:
        """Writes the run's report, a self-contained HTML page, and returns its path.

        path: by default report.html or report-public.html in the run's directory.
        public: leaves out everything that depends on the data. Without it, the page is confidential.
        """
        return _core.write_report(self.directory, public, None if path is None else pathlib.Path(path))

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in ("_scratch", "predictor")} | {"_scratch": None}


class Predictor:
    """A trained model. Its pickle contains weights, bounds and vocabularies, but no key."""

    def __init__(self, core: Any) -> None:
        self._core = core
        self.columns: list[str] = core.columns
        words: list[str] = core.classes
        whole = bool(words) and all(word.lstrip("-").isdecimal() and str(int(word)) == word for word in words)
        self.classes: list[Any] = [int(word) for word in words] if whole else words

    @property
    def bounds(self) -> dict[str, list[float]]:
        """Declared and released bounds by column."""
        return dict(self._core.bounds)

    @property
    def released_bounds(self) -> dict[str, list[float]]:
        """The bounds that the run released privately."""
        return dict(self._core.released_bounds)

    @property
    def label_bounds(self) -> list[float]:
        """For a model that predicts a number: the values that the outputs -1 and 1 stand for."""
        return list(self._core.label_bounds) or [-1.0, 1.0]

    def outputs(self, X: Any, names: Sequence[str] | None = None) -> Any:
        """The outputs of the last layer, [records, outputs]: a score for each class, or a number in [-1, 1].

        names: the columns of X; by default a data frame's own names, and for an array those of the training data.
        """
        import numpy as np
        if not arrays.is_frame(X) and not hasattr(X, "nnz"):
            X = np.asarray(X)
        own = arrays.names_of(X)
        if names is None:
            names = own
            if self.columns and not arrays.is_frame(X):
                if len(own) != len(self.columns):
                    arrays.refuse(f"X has {len(own)} columns, but the model was trained on {len(self.columns)}: "
                                  f"{', '.join(self.columns[:20])}", op="predict")
                names = self.columns
        if X.shape[0] == 0:
            arrays.refuse("X has no records; pass at least one", op="predict")
        columns = arrays.columns_of(X, self.columns or own, self._core.categorical, names)
        flat = self._core.outputs(columns, os.cpu_count() or 1)
        return flat.reshape(X.shape[0], -1)

    def predict(self, X: Any, names: Sequence[str] | None = None) -> Any:
        import numpy as np
        outputs = self.outputs(X, names).astype(np.float64)
        if self.classes:
            return np.asarray(self.classes)[outputs.argmax(axis=1)]
        lower, upper = self.label_bounds
        return lower + (outputs[:, 0] + 1) / 2 * (upper - lower)

    def predict_proba(self, X: Any, names: Sequence[str] | None = None) -> Any:
        import numpy as np
        if not self.classes:
            arrays.refuse("the model predicts a number, not a class; use predict", op="predict_proba")
        scores = self.outputs(X, names).astype(np.float64)
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        return scores / scores.sum(axis=1, keepdims=True)

    def __getstate__(self) -> tuple[str, bytes, dict[str, Any]]:
        state: tuple[str, bytes, dict[str, Any]] = self._core.state()
        return state

    def __setstate__(self, state: tuple[str, bytes, dict[str, Any]]) -> None:
        self.__init__(_core.Model.make(*state))  # type: ignore[misc]


def open_run(directory: str | os.PathLike[str]) -> Run:
    """Opens the run in a directory, from `discreet train` or from Python. Its claim is computed again from its files.

    Its notes are those that follow from its configuration.
    """
    folder = pathlib.Path(directory)
    about = _core.open_run(folder)
    epsilon = about.pop("epsilon")
    lines = [json.loads(line) for line in (folder / "trace.jsonl").read_text("utf-8").splitlines()]
    loss = lines[-1].get("loss") if lines and lines[-1].get("kind") == "run_end" else None
    for column, (lower, upper) in lines[0].get("released_bounds", {}).items():
        about["notes"].append(f"released privately: {column} in [{lower:g}, {upper:g}]")
    return Run(epsilon=Interval(*epsilon) if epsilon else None, loss=loss, seconds=None, released=None, **about)


def train(X: Any = None, y: Any = None, out: str | os.PathLike[str] | None = None, *,
          config: str | os.PathLike[str] | Mapping[str, Any] | None = None, settings: Mapping[str, Any] | None = None,
          target_epsilon: float | None = None, target_delta: float | None = None, bounds: arrays.Bounds = None,
          categories: Mapping[Any, Sequence[Any]] | None = None, classes: Any = None,
          label_bounds: Sequence[float] | None = None, declared_size: int | None = None, batch_size: int | None = None,
          epochs: int | None = None, hidden: Sequence[int] | None = None, test: tuple[Any, Any] | None = None,
          resume: bool = False, threads: int | None = None, on_bad_row: str = "reject",
          progress: Callable[[dict[str, Any]], None] | None = None) -> Run:
    """Trains a private model: train(config, out) from a configuration, or train(X, y) from arrays.

    train(config, out) trains according to the configuration and writes the run to the directory `out`. Paths in a configuration
    file are relative to that file; otherwise they are relative to the working directory.

    train(X, y) trains on a NumPy array or a data frame. No copy of the records is written; to resume a run, pass the same
    records again. Bounds and categories are never taken from the data.

    X: records × features. y: one label per record.
    target_epsilon, target_delta: the budget. The noise is chosen to meet it, unless config or settings set noise_multiplier.
    bounds: (lower, upper) for all columns, where each is a number or an array with one number per column; or a dictionary
        column → (lower, upper). Bounds of columns without an entry are released privately, within the budget; run.notes
        states them.
    categories: column → the words or values that it may contain; "*" stands for every other word.
    classes: every label that a record may have; "public" treats those found in y as public knowledge.
    label_bounds: (lower, upper) of a label that is a number.
    declared_size: a public number that is at least the number of records. Without it, the number of records is public, and the
        adjacency is zero_out.
    batch_size, epochs: expected number of records of a step, and number of passes over the data; by default as for
        `discreet train` (docs/concepts/training.md, "Defaults").
    hidden: sizes of hidden layers; without it, the model is linear.
    test: (X, y) of held-out records, which have no guarantee.
    out: the run's directory; by default a temporary one, which is removed together with the Run.

    Both forms:
    config, settings: as in load_config. Arguments override config, and settings override both.
    resume: continue the run in that directory, bit for bit.
    threads: number of threads, which does not change the result; by default one per processor.
    on_bad_row: "reject" rejects data with a row that cannot be read; "skip" leaves such rows out.
    progress: called after every step with {"step", "planned_steps", "epsilon", "steps_per_second"}.

    Ctrl-C ends the run after the current step; `ended` is then "interrupted".
    """
    if isinstance(X, (str, os.PathLike, Mapping)) and config is None:
        if y is not None and out is not None:
            arrays.refuse("a configuration, y and out are all set; call train(config, out), or train(X, y, out, config=config)")
        config, X, out, y = X, None, y if out is None else out, None
    columns = test_columns = None
    notes: list[str] = []
    given = dict(settings or {})
    if X is None:
        if config is None:
            arrays.refuse("nothing to train on; call train(config, out) or train(X, y)")
        if out is None:
            arrays.refuse("out is missing; name a directory for the run, as in train(config, 'run')")
    else:
        if y is None:
            arrays.refuse("y is missing; pass one label per record")
        section = _Section(X, y, bounds, categories, classes, label_bounds)
        columns, notes = section.columns(X, y), section.notes
        if test is not None:
            test_columns = section.columns(*test)
        arguments = {**section.keys, "target_epsilon": target_epsilon, "target_delta": target_delta,
                     "declared_size": declared_size, "effective_batch_size": batch_size, "run.epochs": epochs,
                     "model.hidden": None if hidden is None else list(hidden)}
        given = {key: value for key, value in arguments.items() if value is not None} | given
        given = _with_defaults({} if config is None else config, given, len(columns[-1][1]), section.classifies)
    scratch = None
    if out is None:
        scratch = _Scratch()
        out = scratch.path
    text, name = _text({} if config is None else config)
    folder = pathlib.Path(name).parent if pathlib.Path(name).is_file() else pathlib.Path()
    result = _core.train(text, name, _settings(given), folder, pathlib.Path(out), resume,
                         threads or os.cpu_count() or 1, on_bad_row, progress, columns, test_columns)
    epsilon = result.pop("epsilon")
    result["notes"] = notes + result["notes"]
    if zeroed := result.pop("zeroed"):
        warnings.warn(f"{zeroed} (this depends on the records: keep it confidential)", stacklevel=2)
    return Run(epsilon=Interval(*epsilon) if epsilon else None, _scratch=scratch, **result)


class _Section:
    """The section `data` of the configuration for X and y."""

    def __init__(self, X: Any, y: Any, bounds: arrays.Bounds, categories: Mapping[Any, Sequence[Any]] | None, classes: Any,
                 label_bounds: Sequence[float] | None) -> None:
        self.names = arrays.names_of(X)
        if not self.names:
            arrays.refuse("X has no columns; pass at least one feature")
        self.keys, self.notes = arrays.data_section(self.names, y, bounds=bounds, categories=categories, classes=classes,
                                                    label_bounds=label_bounds)
        self.classifies = "data.classes" in self.keys

    def columns(self, X: Any, y: Any) -> list[arrays.Column]:
        columns = arrays.columns_of(X, self.names, self.keys.get("data.categorical", {}))
        labels = arrays.words_of(y) if self.classifies else arrays.numbers_of(y, "y")
        if len(labels) != X.shape[0]:
            arrays.refuse(f"X has {X.shape[0]} records, but y has {len(labels)} labels; pass one label per record")
        if not len(labels):
            arrays.refuse("X has no records; pass at least one")
        return [*columns, (self.keys["data.label"], labels)]


def _with_defaults(config: str | os.PathLike[str] | Mapping[str, Any], settings: dict[str, Any], rows: int,
                   classifies: bool) -> dict[str, Any]:
    """The settings with defaults for missing keys, all from public quantities."""
    known = set(_core.given_keys(*_text(config), _settings(settings)))
    has = lambda *keys: any(key in known or _PRIVACY + key in known for key in keys)
    if not has("target_epsilon"):
        arrays.refuse("target_epsilon is missing; set the epsilon that the run may spend, such as target_epsilon=3",
                      "INVALID_DP_CONFIG")
    out: dict[str, Any] = {}
    if not has("declared_size"):
        out["declared_size"] = rows
        if not has("adjacency"):
            out["adjacency"] = "zero_out"
    if not has("model.kind"):
        out["model.kind"] = "mlp" if has("model.hidden") else "softmax" if classifies else "linear"
    return {**out, **settings}
