"""Private models as scikit-learn estimators.

    >>> from discreet.sklearn import LogisticRegression
    >>> model = LogisticRegression(target_epsilon=3, bounds=(0, 100), classes=[0, 1])
    >>> model.fit(X, y).predict(X_new)                          # doctest: +SKIP
    >>> model.epsilon_, model.run_.report(public=True)          # doctest: +SKIP

An estimator scales the columns itself, by declared bounds or by bounds that it releases privately. A transformer before it in
a pipeline that learns from the data (StandardScaler, PCA, a vocabulary) is not covered by epsilon_. Neither are
hyper-parameters chosen on the data, as by GridSearchCV: every fit spends its own epsilon on the same records.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from discreet import arrays, training

__all__ = ["LinearRegression", "LogisticRegression", "MLPClassifier", "PrivacyWarning"]


class PrivacyWarning(UserWarning):
    """Warns that the guarantee covers less than a caller may expect."""


class _Frame:
    """An array with the column names that it had before validation."""

    def __init__(self, X: Any, names: Any) -> None:
        self.columns = [str(name) for name in names]
        self.shape = X.shape
        self._X = X

    def __getitem__(self, name: str) -> Any:
        return self._X[:, self.columns.index(name)]


class _Private(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """The common part of the estimators.

    target_epsilon, target_delta, bounds, categories, declared_size, batch_size, epochs, config, settings, out, threads: as in
        discreet.train.
    random_state: None draws noise and batches with a secret key. Any other value draws them from a public seed, for tests: the
        model is then not private, and fit warns.

    After fit, run_ is the discreet.Run, epsilon_ the epsilon that it claims at delta_ (infinite if it is not private), and
    adjacency_ the relation of neighbouring data sets.
    """

    def __init__(self, target_epsilon: float = 1.0, target_delta: float | None = None, *, bounds: arrays.Bounds = None,
                 categories: Mapping[Any, Sequence[Any]] | None = None, declared_size: int | None = None,
                 batch_size: int | None = None, epochs: int | None = None,
                 config: str | os.PathLike[str] | Mapping[str, Any] | None = None, settings: Mapping[str, Any] | None = None,
                 out: str | os.PathLike[str] | None = None, random_state: Any = None, threads: int | None = None) -> None:
        self.target_epsilon = target_epsilon
        self.target_delta = target_delta
        self.bounds = bounds
        self.categories = categories
        self.declared_size = declared_size
        self.batch_size = batch_size
        self.epochs = epochs
        self.config = config
        self.settings = settings
        self.out = out
        self.random_state = random_state
        self.threads = threads

    # ---------------------------------------------------------------- records

    def _checked(self, X: Any, **how: Any) -> Any:
        """X as numbers; a data frame with categories is returned unchanged. how: arguments of validate_data."""
        if self.categories and arrays.is_frame(X):
            how |= {"skip_check_array": True}
        elif self.categories:
            how |= {"dtype": None}
        else:
            how |= {"dtype": np.float64}
        try:
            return validate_data(self, X, **how)
        except ValueError as error:
            if "could not convert string to float" in str(error):
                arrays.refuse(f"X contains words ({error}); declare the words that their columns may contain, from prior "
                              "knowledge: categories={column: [...]}, with '*' for every other word", op="fit")
            raise

    # ---------------------------------------------------------------- training

    def _train(self, X: Any, y: Any, settings: Mapping[str, Any] | None = None, **what: Any) -> None:
        if getattr(self, "_is_clone", False):
            warnings.warn("this estimator is a clone, such as cross-validation and grid searches create: every fit spends its "
                          "own epsilon on the same records, and hyper-parameters chosen on the data are not covered",
                          PrivacyWarning, stacklevel=3)
        settings = {**(settings or {}), **(self.settings or {})}
        if self.random_state is not None:
            warnings.warn("random_state draws the noise from a public seed: this model is not private; omit it for a "
                          "private one", PrivacyWarning, stacklevel=3)
            settings = {"secure": False, "seed": int(check_random_state(self.random_state).randint(2**31 - 1)), **settings}
        if hasattr(self, "feature_names_in_") and not arrays.is_frame(X):
            X = _Frame(X, self.feature_names_in_)
        run = training.train(X, y, self.out, config=self.config, settings=settings, target_epsilon=self.target_epsilon,
                             target_delta=self.target_delta, bounds=self.bounds, categories=self.categories,
                             declared_size=self.declared_size, batch_size=self.batch_size, epochs=self.epochs,
                             threads=self.threads, **what)
        if run.ended == "interrupted":
            raise KeyboardInterrupt
        self.run_ = run
        self.epsilon_ = math.inf if run.epsilon is None or run.not_private else run.epsilon.upper
        self.delta_ = run.delta
        self.adjacency_ = run.adjacency
        self.n_iter_ = run.steps
        self._predictor = run.predictor

    def _outputs(self, X: Any) -> Any:
        check_is_fitted(self)
        X = self._checked(X, reset=False)
        return self._predictor.outputs(X, None if arrays.is_frame(X) else self._predictor.columns).astype(np.float64)

    def _linear(self) -> tuple[Any, Any] | None:
        """Weights [outputs, features] and intercepts for unscaled records inside the bounds; None if there are categories."""
        if self.categories:
            return None
        weights = {name: value.astype(np.float64) for name, value in self.run_.model.items()}
        bounds = np.array([self._predictor.bounds[name] for name in self._predictor.columns])
        scale = 2 / (bounds[:, 1] - bounds[:, 0])
        slopes, intercepts = (weights[name] for name in sorted(weights, key=lambda name: -weights[name].ndim))
        return slopes * scale, intercepts - slopes @ (scale * bounds[:, 0] + 1)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_predictor")

    def __sklearn_clone__(self) -> Any:
        clone = super().__sklearn_clone__()
        clone._is_clone = True
        return clone


class _Classifier(ClassifierMixin, _Private):  # type: ignore[misc]
    def fit(self, X: Any, y: Any) -> Any:
        """Trains on records X and labels y, and spends up to target_epsilon.

        Raises discreet.Error, which says what is missing. Ctrl-C ends the run and raises KeyboardInterrupt.
        """
        X, y = self._checked(X, y=y)
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        public = isinstance(self.classes, str) and self.classes == "public"
        if self.classes is None and y.dtype == bool:
            self.classes_ = np.array([False, True])
        elif self.classes is None or (isinstance(self.classes, str) and not public):
            arrays.declared_classes(y, self.classes, None)  # raises the error
        else:
            self.classes_ = np.unique(y if public else np.asarray(self.classes))
        strange = ~np.isin(y, self.classes_)
        if strange.any():
            arrays.refuse(f"record {int(strange.argmax())} has the label {y[strange.argmax()]!r}, which is not in classes; "
                          "declare every label that a record may have", op="fit")
        if len(self.classes_) < 2:
            arrays.refuse(f"classes has one class, {self.classes_[0]!r}; a classifier needs at least two", op="fit")
        # The words are in the order of classes_, which is the order of the outputs.
        self._train(X, y, classes=self.classes_, **self._architecture())
        if public:
            self.run_.notes.insert(0, "classes='public': the set of labels was taken from y as public knowledge; the guarantee "
                                      "does not cover it")
        self._after()
        return self

    def predict(self, X: Any) -> Any:
        """The most likely class of each record."""
        outputs = self._outputs(X)
        return self.classes_[outputs.argmax(axis=1)]

    def predict_proba(self, X: Any) -> Any:
        """The probability of each class, in the order of classes_."""
        outputs = self._outputs(X)
        scores = np.exp(outputs - outputs.max(axis=1, keepdims=True))
        return scores / scores.sum(axis=1, keepdims=True)

    def predict_log_proba(self, X: Any) -> Any:
        """The logarithm of predict_proba."""
        return np.log(self.predict_proba(X))

    def _architecture(self) -> dict[str, Any]:
        return {}

    def _after(self) -> None:
        pass


class LogisticRegression(_Classifier):
    """Private logistic regression for two or more classes.

    classes: every label that a record may have; "public" treats those found in y as public knowledge. Not needed for labels of
        type bool.
    The other parameters are common to all estimators of this module.

    coef_ and intercept_ apply to unscaled records; values beyond the bounds count as the bound. They do not exist if there are
    categories.
    """

    def __init__(self, target_epsilon: float = 1.0, target_delta: float | None = None, *, classes: Any = None,
                 bounds: arrays.Bounds = None, categories: Mapping[Any, Sequence[Any]] | None = None,
                 declared_size: int | None = None, batch_size: int | None = None, epochs: int | None = None,
                 config: str | os.PathLike[str] | Mapping[str, Any] | None = None, settings: Mapping[str, Any] | None = None,
                 out: str | os.PathLike[str] | None = None, random_state: Any = None, threads: int | None = None) -> None:
        super().__init__(target_epsilon, target_delta, bounds=bounds, categories=categories, declared_size=declared_size,
                         batch_size=batch_size, epochs=epochs, config=config, settings=settings, out=out,
                         random_state=random_state, threads=threads)
        self.classes = classes

    def decision_function(self, X: Any) -> Any:
        """The score of each class; for two classes, the score of the second minus that of the first."""
        outputs = self._outputs(X)
        return outputs[:, 1] - outputs[:, 0] if len(self.classes_) == 2 else outputs

    def _after(self) -> None:
        linear = self._linear()
        if linear is None:
            return
        slopes, intercepts = linear
        two = len(self.classes_) == 2
        self.coef_ = slopes[1:] - slopes[:1] if two else slopes
        self.intercept_ = intercepts[1:] - intercepts[:1] if two else intercepts


class MLPClassifier(_Classifier):
    """A private multilayer perceptron.

    hidden_layer_sizes: number of units of each hidden layer. activation: "relu" or "tanh".
    classes and the other parameters: as in LogisticRegression.
    """

    def __init__(self, hidden_layer_sizes: Sequence[int] = (64,), activation: str = "relu", target_epsilon: float = 1.0,
                 target_delta: float | None = None, *, classes: Any = None, bounds: arrays.Bounds = None,
                 categories: Mapping[Any, Sequence[Any]] | None = None, declared_size: int | None = None,
                 batch_size: int | None = None, epochs: int | None = None,
                 config: str | os.PathLike[str] | Mapping[str, Any] | None = None, settings: Mapping[str, Any] | None = None,
                 out: str | os.PathLike[str] | None = None, random_state: Any = None, threads: int | None = None) -> None:
        super().__init__(target_epsilon, target_delta, bounds=bounds, categories=categories, declared_size=declared_size,
                         batch_size=batch_size, epochs=epochs, config=config, settings=settings, out=out,
                         random_state=random_state, threads=threads)
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.classes = classes

    def _architecture(self) -> dict[str, Any]:
        sizes = [self.hidden_layer_sizes] if isinstance(self.hidden_layer_sizes, int) else list(self.hidden_layer_sizes)
        return {"hidden": sizes, "settings": {"model.activation": self.activation}}


class LinearRegression(RegressorMixin, _Private):  # type: ignore[misc]
    """Private least squares.

    label_bounds: (lower, upper) of the label, from prior knowledge; labels beyond a bound count as the bound.
    The other parameters are common to all estimators of this module. coef_ and intercept_ are as in LogisticRegression.
    """

    def __init__(self, target_epsilon: float = 1.0, target_delta: float | None = None, *,
                 label_bounds: Sequence[float] | None = None, bounds: arrays.Bounds = None,
                 categories: Mapping[Any, Sequence[Any]] | None = None, declared_size: int | None = None,
                 batch_size: int | None = None, epochs: int | None = None,
                 config: str | os.PathLike[str] | Mapping[str, Any] | None = None, settings: Mapping[str, Any] | None = None,
                 out: str | os.PathLike[str] | None = None, random_state: Any = None, threads: int | None = None) -> None:
        super().__init__(target_epsilon, target_delta, bounds=bounds, categories=categories, declared_size=declared_size,
                         batch_size=batch_size, epochs=epochs, config=config, settings=settings, out=out,
                         random_state=random_state, threads=threads)
        self.label_bounds = label_bounds

    def fit(self, X: Any, y: Any) -> Any:
        """Trains on records X and labels y, and spends up to target_epsilon.

        Raises discreet.Error, which says what is missing. Ctrl-C ends the run and raises KeyboardInterrupt.
        """
        X, y = self._checked(X, y=y, y_numeric=True)
        y = column_or_1d(y, warn=True)
        if self.label_bounds is None:
            arrays.refuse("label_bounds is missing; declare label_bounds=(lower, upper) from prior knowledge about the "
                          "label: using the range found in y would be an unaccounted release", op="fit")
        self._train(X, y, label_bounds=self.label_bounds)
        lower, upper = self._predictor.label_bounds
        linear = self._linear()
        if linear is not None:
            slopes, intercepts = linear
            self.coef_ = slopes[0] * (upper - lower) / 2
            self.intercept_ = float(lower + (intercepts[0] + 1) / 2 * (upper - lower))
        return self

    def predict(self, X: Any) -> Any:
        """The predicted number of each record."""
        outputs = self._outputs(X)
        lower, upper = self._predictor.label_bounds
        return lower + (outputs[:, 0] + 1) / 2 * (upper - lower)
