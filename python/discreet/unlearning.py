"""Online learning with deletable records, and a budget for deletions.

    >>> from discreet.unlearning import Calibrator, MemoryPair, Phase, PrivacyOdometer
    >>> odometer = PrivacyOdometer(eps_total=1.0, delta_total=1e-5, lambda_=0.1, gamma=5.0)
    >>> model = MemoryPair(dim=2, odometer=odometer, calibrator=Calibrator(quantile=0.95, D_cap=10.0))
    >>> model.phase
    <Phase.CALIBRATION: 1>

The accounting "specification" computes the specification's own numbers, which certify nothing
(`odometer.guarantee` says so). "zcdp", "rdp" and "gdp" enforce their constants and are certified.
docs/concepts/unlearning.md defines each guarantee.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import secrets
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, NoReturn

from discreet import _core, arrays, errors
from discreet._core import epsilon_lower_bound
from discreet.errors import Error
from discreet.mechanism import ConfigSource, _text

__all__ = ["Calibrator", "CapacityError", "DriftDetector", "ErmEngine", "ExactEngine", "MemoryPair", "Phase", "PrivacyOdometer",
           "Service", "StreamEngine", "epsilon_lower_bound", "joint_stats"]


class Phase(Enum):
    CALIBRATION = 1
    LEARNING = 2
    INTERLEAVING = 3


class CapacityError(Error, RuntimeError):
    """The odometer is not finalized, or its capacity is used up: retrain without the record."""


def _stats_dict(stats: _core.CalibrationStats) -> dict[str, Any]:
    for message in stats.warnings:
        warnings.warn(message, stacklevel=3)
    return {name: getattr(stats, name) for name in ("G", "D", "c", "C", "N_star")}


def _stats(stats: Mapping[str, Any]) -> _core.CalibrationStats:
    return _core.CalibrationStats(**{name: stats[name] for name in ("G", "D", "c", "C", "N_star")
                                     if name in stats})


class Calibrator(_core.Calibrator):
    """Estimates G, D, c and C from observed gradients and parameters, and derives N* from them.

    quantile: of the gradient norms, in (0, 1]. D_cap: upper limit of D, or None.
    """

    c_hat: float | None = None
    C_hat: float | None = None

    def estimate_bounds(self, model: object) -> tuple[float, float]:
        """(c, C) from model.lbfgs_bounds(), or (1, 1)."""
        return _lbfgs_bounds(model) or (1.0, 1.0)

    def finalize(self, gamma: float, model: object = None) -> dict[str, Any]:
        """A dictionary with G, D, c, C and N_star; warns about each fallback used."""
        stats = _stats_dict(self.finalize_stats(gamma, _lbfgs_bounds(model)))
        self.c_hat, self.C_hat = stats["c"], stats["C"]
        return stats


def _lbfgs_bounds(model: object) -> tuple[float, float] | None:
    bounds: Callable[[], tuple[float, float] | None] = getattr(model, "lbfgs_bounds", lambda: None)
    return bounds()


class PrivacyOdometer(_core.PrivacyOdometer):
    """The number of deletions that a privacy and a regret budget allow, and the noise that each needs.

    gamma sets gamma_learn and gamma_priv unless these are given. accounting: "specification", "zcdp",
    "rdp" or "gdp". The remaining arguments are for the certified ones: guarantee "per-record",
    "set-level" or "transcript"; reserve, the share for noised releases; and the constants that are
    enforced on every record: loss, dimension, G_f, D, R, Y.
    """

    L: float  # the four constants of the last calibration
    D: float
    c: float
    C: float

    def __init__(self, eps_total: float, delta_total: float, lambda_: float, delta_B: float = 0.05, T: int = 100000,
                 gamma: float = 0.05, *, gamma_learn: float | None = None, gamma_priv: float | None = None,
                 accounting: str = "specification", guarantee: str = "per-record", reserve: float = 0.0,
                 loss: str = "logistic", dimension: int = 1, G_f: float = 1.0, D: float = 1.0, R: float = 1.0,
                 Y: float = 1.0) -> None:
        super().__init__(
            eps_total=eps_total, delta_total=delta_total, lambda_=lambda_, delta_B=delta_B, T=T,
            gamma_learn=gamma if gamma_learn is None else gamma_learn,
            gamma_priv=gamma if gamma_priv is None else gamma_priv, accounting=accounting,
            guarantee=guarantee, reserve=reserve, loss=loss, dimension=dimension, G_f=G_f, D=D, R=R, Y=Y)

    @property
    def _status(self) -> str:
        return self.status

    def finalize_with(self, stats: Mapping[str, Any], T_estimate: int, deletes_from: int = 1) -> None:
        """Computes the capacity, after the model that uses this odometer has warmed up."""
        self.finalize_stats(_stats(stats), T_estimate, deletes_from)
        self._take(stats)

    def recalibrate(self, stats: Mapping[str, Any], T_estimate: int, deletes_from: int = 1) -> None:
        """Computes the capacity again from the remaining budget."""
        self.recalibrate_stats(_stats(stats), T_estimate, deletes_from)
        self._take(stats)

    def _take(self, stats: Mapping[str, Any]) -> None:
        self.L, self.D, self.c, self.C = (stats.get(name, 1.0) for name in ("G", "D", "c", "C"))
        for message in self.messages:
            warnings.warn(message, stacklevel=3)

    def spend(self, deletes: int = 1) -> None:
        """Counts deletions, all or none; CapacityError if fewer are left."""
        with _capacity_error():
            super().spend(deletes)


class MemoryPair(_core.MemoryPair):
    """An online learner with phases CALIBRATION, LEARNING and INTERLEAVING.

    loss: "squared" or "logistic" (labels -1 and 1). insecure_seed: for tests only; by default the noise
    comes from the operating system's generator.
    """

    def __init__(self, dim: int, odometer: PrivacyOdometer, calibrator: Calibrator | None = None, *,
                 loss: str = "squared", insecure_seed: int | None = None) -> None:
        super().__init__(dim, odometer, Calibrator() if calibrator is None else calibrator, loss,
                         insecure_seed)
        self.odometer = odometer

    @property
    def phase(self) -> Phase:
        return Phase(self.phase_number)

    @property
    def stats(self) -> dict[str, Any]:
        """The result of the last calibration, for finalize_with."""
        found = self.calibration_stats
        return {name: getattr(found, name) for name in ("G", "D", "c", "C", "N_star")}

    def observed_stats(self, gamma: float) -> dict[str, Any]:
        """The statistics of this learner's calibration so far, which joint_stats combines with those of others."""
        return _stats_dict(self.calibrator.finalize_stats(gamma, self.lbfgs_bounds()))

    def finalize_calibration(self, gamma_or_stats: float | dict[str, Any]) -> dict[str, Any]:
        """Ends CALIBRATION: with gamma_learn, or with statistics from Calibrator.finalize."""
        if isinstance(gamma_or_stats, dict):
            return _stats_dict(self.finalize_stats(_stats(gamma_or_stats)))
        return _stats_dict(self.finalize_gamma(gamma_or_stats))

    def delete(self, x: Sequence[float], y: float) -> None:
        """Deletes one live copy of the record; CapacityError if the odometer is not ready."""
        with _capacity_error():
            self.erase(x, y)

    def on_phase(self, hook: Callable[[Phase, Phase], object]) -> None:
        """Calls hook(from_phase, to_phase) after each change of phase."""
        # The core must not hold a reference to the hook: the cycle through the model could not be collected.
        self._hook = hook
        reference = weakref.ref(self)

        def changed(old: int, new: int) -> None:
            model = reference()
            if model is not None:
                model._hook(Phase(old), Phase(new))

        self.on_phase_number(changed)


def joint_stats(stats: Sequence[Mapping[str, Any]], gamma: float) -> dict[str, Any]:
    """The worst case of several learners' statistics, so that one N* and one capacity hold for all of them.

    Each learner of a distributed or federated setting contributes MemoryPair.observed_stats, passes the joint statistics to
    finalize_calibration, and reports with on_phase when it has warmed up.
    """
    if not stats:
        _refuse("there are no statistics; pass those of at least one learner")
    worst = {"G": max(s["G"] for s in stats), "D": max(s["D"] for s in stats), "c": min(s["c"] for s in stats),
             "C": max(s["C"] for s in stats)}
    return {**worst, "N_star": _core.sample_complexity(_stats(worst), gamma)}


class DriftDetector(_core.DriftDetector):
    """Detects that the losses of new records are too high for the published model, so that it should be recalibrated.

    Losses are clipped to [0, loss_bound] and summed over windows of `window` records. sigma is the standard deviation of the
    noise on a window's sum; its cost, `rho`, is charged once to the odometer's reserve, when the detector is created. With
    sigma 0 the losses must come from public records.
    """

    def __init__(self, *, loss_bound: float = 1.0, window: int = 100, threshold: float = 0.5, sigma: float = 0.0,
                 odometer: PrivacyOdometer | None = None, insecure_seed: int | None = None) -> None:
        with _capacity_error():
            super().__init__(loss_bound, window, threshold, sigma, odometer, insecure_seed)

    def observe(self, loss: float) -> bool | None:
        """Adds the loss of one record. Returns None inside a window, and at its end whether it shows drift."""
        return super().observe(loss)


# ---------------------------------------------------------------- engines


class _Engine:
    """The common part of the engines. The caller numbers the records; a call that fails changes nothing."""

    if TYPE_CHECKING:  # of the core's classes

        def erase(self, ids: Sequence[int]) -> None: ...

    def insert(self, id: int, x: Any, y: float) -> None:
        """Inserts a record. Values beyond the bounds of the engine are clipped to them."""
        super().insert(id, _vector(x), float(y))  # type: ignore[misc]

    def delete(self, ids: Any) -> None:
        """Deletes one or several records, all or none; CapacityError if the budget does not allow it: retrain instead."""
        with _capacity_error():
            self.erase([ids] if isinstance(ids, int) else [int(id) for id in ids])

    def publish(self) -> Any:
        """The model for publication: `parameters`, `sigma`, `residual_bound` and `guarantee`."""
        with _capacity_error():
            return super().publish()  # type: ignore[misc]


class ExactEngine(_Engine, _core.ExactEngine):
    """Ridge regression from integer sums: after a delete, the state is bit-identical to one without the record.

    dimension, R (bound on a record's norm), Y (bound on the label), bits (of the grid), lambda_, N (public divisor of the
    loss), n_max (maximum number of live records), tolerance (of a release).
    """

    def __init__(self, dimension: int, **options: Any) -> None:
        super().__init__({"dimension": dimension, **options})


class ErmEngine(_Engine, _core.ErmEngine):
    """Empirical risk minimisation that keeps the records; every release is certified to be close to retraining and has noise.

    dimension, loss ("logistic" or "squared"), lambda_, N, n_max, R, Y, tau (certified gradient norm), sigma (noise of a
    release), eps_total, delta_total, accounting ("zcdp", "rdp", "gdp"), guarantee ("per-record", "set-level", "transcript").
    """

    def __init__(self, dimension: int, *, insecure_seed: int | None = None, **options: Any) -> None:
        super().__init__({"dimension": dimension, **options}, insecure_seed)


class StreamEngine(_Engine, _core.StreamEngine):
    """Online learning that keeps no records; a delete adds noise that hides the record's remaining influence.

    odometer: a certified one, finalized before the first delete. release_sigma: standard deviation of the noise on each release
    under the guarantee "transcript".
    """

    def __init__(self, odometer: PrivacyOdometer, *, release_sigma: float = 0.0, insecure_seed: int | None = None) -> None:
        super().__init__(odometer, release_sigma, insecure_seed)
        self.odometer = odometer


def _vector(x: Any) -> Any:
    return _numbers(x, 1, "a record")


def _numbers(values: Any, dimensions: int, what: str) -> Any:
    import numpy as np
    try:
        array = np.ascontiguousarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        _refuse(f"{what} must be numbers; found {type(values).__name__}")
    if np.ndim(values) != dimensions:
        _refuse(f"{what} must have {dimensions} dimension{'s' if dimensions > 1 else ''}; found {np.ndim(values)}")
    return array


def _refuse(sentence: str, code: str = "INVALID_INPUT") -> NoReturn:
    errors.refuse("unlearning", sentence, code)


# ---------------------------------------------------------------- the durable service


class Service:
    """A model in a folder from which people can be deleted, with signed receipts: `discreet unlearn` from Python.

    The result of a call is durable when the call returns. A request that is repeated with the same content changes nothing and
    returns the same answer. The command can use the same folder; one process may use it at a time.

        with Service.create("churn", "exact", dimension=2, N=1000, n_max=2000, lambda_=0.01) as service:
            service.insert(["ann", "bob"], [[0.1, 0.2], [0.3, -0.1]], [1, -1])
            service.publish()
            receipts = service.delete("ann", request="ticket-4711")

    folder: created by `create` or `discreet unlearn init`. passphrase: of the ledger's key, if it has one.
    """

    def __init__(self, folder: str | os.PathLike[str], *, passphrase: str = "") -> None:
        self.folder = pathlib.Path(folder)
        self._passphrase = passphrase
        self.ledger = self.folder / "ledger.db"
        self.key = self.folder / "ledger.key"
        settings = self.folder / "settings.json"
        if settings.exists():
            try:
                said = json.loads(settings.read_text("utf-8"))
                self.ledger, self.key = pathlib.Path(said["ledger"]), pathlib.Path(said["key"])
            except (ValueError, KeyError, TypeError):
                _refuse(f"{settings} was not written by 'discreet unlearn init'; restore it")
        self._service: _core.UnlearningService | None = _core.UnlearningService(self.folder / "model.db", self.ledger)

    @classmethod
    def create(cls, folder: str | os.PathLike[str], engine: str = "exact", *, dimension: int | None = None, name: str = "model",
               intercept: bool = False, bounds: Mapping[str, Sequence[float]] | None = None,
               categories: Mapping[str, Sequence[Any]] | None = None, classes: Sequence[Any] | None = None,
               label_bounds: Sequence[float] | None = None, config: ConfigSource | None = None, **options: Any) -> Service:
        """Creates the folder with an empty model, a ledger and its key pair, and opens it.

        engine: "exact", "erm" or "stream". name: public; it is in every receipt. options: those of ExactEngine or ErmEngine;
        for a stream, those of PrivacyOdometer, and calibration, quantile and D_cap.

        Records are either `dimension` numbers, with an intercept if you ask for one; or they have columns that you declare from
        public knowledge, and an intercept. bounds: [lower, upper] of each numeric column. categories: the words of each
        categorical column, "*" for every other word. classes: the two labels; or label_bounds, if the label is a number.
        config: a configuration whose section `data` declares all of this instead.
        """
        form = cls._form(intercept, bounds, categories, classes, label_bounds, config)
        if form.declared == (dimension is not None):
            _refuse("give either dimension, the number of features, or bounds and categories of the columns (or config)")
        features = form.features if dimension is None else dimension
        _core.unlearning_create(pathlib.Path(folder), name, engine,
                                {"dimension": features + (1 if form.intercept else 0), **options}, form)
        return cls(folder)

    @staticmethod
    def _form(intercept: bool, bounds: Mapping[str, Sequence[float]] | None, categories: Mapping[str, Sequence[Any]] | None,
              classes: Sequence[Any] | None, label_bounds: Sequence[float] | None,
              config: ConfigSource | None) -> _core.UnlearningForm:
        declared = (bounds, categories, classes, label_bounds)
        if config is not None:
            if any(part is not None for part in declared):
                _refuse("config declares the columns; do not pass bounds, categories, classes or label_bounds too")
            yaml, where = _text(config)
            return _core.UnlearningForm(True, yaml, where)
        if all(part is None for part in declared):
            return _core.UnlearningForm(intercept, None, "")
        names = [*(bounds or {}), *(categories or {})]
        keys, _ = arrays.data_section(names, None, bounds=bounds or {}, categories=categories, classes=classes,
                                      label_bounds=label_bounds)
        section = {key.removeprefix("data."): value for key, value in keys.items()}
        yaml, where = _text({"data": section})
        return _core.UnlearningForm(True, yaml, where)

    @property
    def columns(self) -> list[str]:
        """The declared columns, in the order in which an array has them; empty if records are numbers."""
        return list(self._open().form.columns)

    @property
    def classes(self) -> list[Any]:
        """The declared classes; integers if both are."""
        words: list[str] = self._open().form.classes
        whole = bool(words) and all(word.lstrip("-").isdecimal() and str(int(word)) == word for word in words)
        return [int(word) for word in words] if whole else words

    def insert(self, subjects: Sequence[str], X: Any, y: Any, *, request: str | None = None, reinsert: bool = False) -> int:
        """Inserts records and returns how many were new.

        subjects: the person of each record. X: an array, or a data frame with the declared columns. request: a name for this
        call; by default a digest of its content. reinsert: accept records of a subject that was deleted. Warns how many records
        and labels are moved inside the bounds; the numbers are confidential.
        """
        content = hashlib.sha256()
        rows = self._rows(subjects, X, y, content)
        if request is None:
            request = f"rows-{content.hexdigest()}"
        service = self._open()
        fresh = int(service.insert(request, rows, reinsert))
        if fresh:
            for moved, what in zip(service.moved(rows), ("records exceed the norm bound and were scaled down to it",
                                                         "labels exceed the label bound and were clipped to it")):
                if moved:
                    warnings.warn(f"{moved} of {len(rows)} {what} (confidential)", stacklevel=2)
        return fresh

    def knows(self, request: str) -> bool:
        """Whether a request of this name was carried out."""
        return bool(self._open().knows(request))

    def delete(self, subjects: str | Sequence[str], *, request: str | None = None,
               withdrawal: str | None = None) -> list[dict[str, Any]]:
        """Deletes all records of each subject, all or none, and returns one receipt per subject for the requester.

        `discreet ledger check` verifies a receipt. A deletion is never rejected for lack of budget: the model is then retrained
        without the records. withdrawal: the hash of the descriptor whose withdrawal in the ledger requested the deletion.
        """
        names = [subjects] if isinstance(subjects, str) else [str(subject) for subject in subjects]
        if not names:
            _refuse("no subject is named; name the subjects whose records to delete")
        request = f"delete-{secrets.token_hex(16)}" if request is None else request
        return list(self._open().erase(request, names, self.ledger, self._pem(), self._passphrase, withdrawal))

    def publish(self) -> Any:
        """Publishes the current model, so that `predict` uses it, and returns it."""
        with _capacity_error():
            return self._open().publish()

    def predict(self, X: Any) -> Any:
        """The answer of the last published model for each record, which is scaled as in training.

        A declared class; the number in label_bounds; or, if records are numbers, the score. Warns if the model has seen fewer
        records than N*.
        """
        import numpy as np
        scores, numbers = self._predict(X)
        classes = self.classes
        return np.asarray(classes)[(scores > 0).astype(int)] if classes else numbers

    def scores(self, X: Any) -> Any:
        """The score of each record by the last published model: positive for the second class."""
        return self._predict(X)[0]

    def _predict(self, X: Any) -> tuple[Any, Any]:
        form = self._open().form
        if form.declared:
            rows = self._open().declared_rows([], self._columns_of(X), False)
        else:
            X = _numbers(X, 2, "X")
            import numpy as np
            rows = _core.unlearning_rows([""] * len(X), X, np.zeros(len(X)))
        scores, numbers, ready = self._open().predict(rows)
        if not ready:
            warnings.warn("the model has seen fewer records than its regret target needs (N*)", stacklevel=3)
        return scores, numbers

    def retrain(self) -> None:
        """Trains again on the live records, from the public initial state: a new generation."""
        self._open().retrain()

    def confirm(self) -> int:
        """Writes the receipts that a killed process left out to the ledger, and returns their number."""
        return int(self._open().confirm(self.ledger, self._pem(), self._passphrase))

    @property
    def status(self) -> dict[str, Any]:
        """Live records, budget, generation and, for a stream, the specification's metrics. Confidential."""
        return dict(self._open().status())

    def verify(self, *, forgotten: tuple[Any, Any] | None = None, test: tuple[Any, Any] | None = None, runs: int = 2000,
               confidence: float = 0.95, seed: int = 1) -> dict[str, Any]:
        """Compares the model with a retrained one and attacks copies of it; spends and changes nothing. Confidential.

        forgotten, test: (X, y) of deleted records, and of records that the model never saw. "holds" tells whether every
        comparison meets its requirement; a low bound from the attack proves nothing.
        """
        rows = [[] if part is None else self._rows(["-"] * len(part[0]), *part) for part in (forgotten, test)]
        return dict(self._open().verify(*rows, runs, confidence, seed))

    def close(self) -> None:
        """Closes the folder, so that other processes can use it."""
        self._service = None

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _open(self) -> Any:
        if self._service is None:
            _refuse("the service is closed; open it again with Service(folder)")
        return self._service

    def _pem(self) -> str:
        return self.key.read_text("utf-8")

    def _columns_of(self, X: Any) -> list[arrays.Column]:
        import numpy as np
        form = self._open().form
        X = X if arrays.is_frame(X) else np.asarray(X)
        own = arrays.names_of(X)
        if not arrays.is_frame(X):
            if len(own) != len(form.columns):
                _refuse(f"X has {len(own)} columns; this model expects {len(form.columns)}: {', '.join(form.columns)}")
            own = form.columns
        return arrays.columns_of(X, form.columns, form.categorical, own)

    def _rows(self, subjects: Sequence[str], X: Any, y: Any, content: Any = None) -> Any:
        """The rows, whose bytes are added to the digest `content`."""
        names = [subjects] if isinstance(subjects, str) else [str(subject) for subject in subjects]
        form = self._open().form
        if form.declared:
            label = arrays.words_of(y) if form.classes else arrays.numbers_of(y, "y")
            columns = [*self._columns_of(X), (form.label, label)]
            rows = self._open().declared_rows(names, columns, True)
            parts: list[Any] = [values for _, values in columns]
        else:
            parts = [_numbers(X, 2, "X"), _numbers(y, 1, "y")]
            rows = _core.unlearning_rows(names, *parts)
        if content is not None:
            content.update(json.dumps(names).encode())
            for part in parts:
                content.update(json.dumps(part).encode() if isinstance(part, list) else part.tobytes())
        return rows


@contextlib.contextmanager
def _capacity_error() -> Iterator[None]:
    """Converts the core's PRIVACY_BUDGET_EXCEEDED to CapacityError."""
    try:
        yield
    except Error as error:
        if error.code != "PRIVACY_BUDGET_EXCEEDED":
            raise
        raised = CapacityError(error.sentence)
        raised.code, raised.op, raised.sentence = error.code, error.op, error.sentence
        raise raised from error
