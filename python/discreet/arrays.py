"""Converts arrays and data frames to named columns for the core, and writes the section `data` that says how they are read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn, Union

from discreet import errors

__all__: list[str] = []

Column = tuple[str, Any]  # a name, and float64 numbers or a list of words
Bounds = Union[Mapping[Any, Sequence[float]], Sequence[Any], None]


def refuse(sentence: str, code: str = "INVALID_INPUT", op: str = "train") -> NoReturn:
    errors.refuse(op, sentence, code)


def is_frame(X: Any) -> bool:
    """True for a data frame of pandas or polars: it has named columns."""
    return hasattr(X, "columns") and hasattr(X, "shape") and not hasattr(X, "nnz")


def names_of(X: Any) -> list[str]:
    """The names of a data frame's columns; those of an array are x0, x1, …"""
    if is_frame(X):
        return [str(name) for name in X.columns]
    shape = getattr(X, "shape", None)
    if hasattr(X, "nnz"):
        refuse("X is a sparse matrix, but only dense records are supported; pass X.toarray()")
    if shape is None or len(shape) != 2:
        refuse(f"X must have two dimensions, records and features; found {0 if shape is None else len(shape)}. "
               "Pass X.reshape(-1, 1) if there is one feature")
    return [f"x{k}" for k in range(shape[1])]


def columns_of(X: Any, names: Sequence[str], categorical: Iterable[str], of: Sequence[str] | None = None) -> list[Column]:
    """The columns `names` of X, the `categorical` ones as words, the others as numbers.

    of: the names of all columns of X; by default its own.
    """
    words, all_names = set(categorical), list(names_of(X) if of is None else of)
    out = []
    for name in names:
        if name not in all_names:
            refuse(f"X has no column {name}; it has {', '.join(all_names[:20])}{', …' if len(all_names) > 20 else ''}")
        place = all_names.index(name)
        if all_names.count(name) > 1:
            refuse(f"two columns of X are called {name}; every column needs a name of its own")
        values = X[X.columns[place]] if is_frame(X) else X[:, place]
        out.append((name, words_of(values) if name in words else numbers_of(values, name)))
    return out


def numbers_of(values: Any, name: str) -> Any:
    """The values as float64; missing ones are NaN."""
    import numpy as np
    array = np.asarray(values)
    if array.ndim != 1:
        refuse(f"{name} must have one dimension; found {array.ndim}")
    if array.dtype.kind in "biuf":
        return array.astype(np.float64, copy=False)
    if array.dtype.kind in "OUST":
        try:
            return np.array([math.nan if _is_missing(value) else float(value) for value in array.tolist()])
        except (TypeError, ValueError):
            refuse(f"column {name} contains values that are not numbers; declare the words that it may contain, from prior "
                   f"knowledge: categories={{{name!r}: [...]}}, with '*' for every other word")
    refuse(f"column {name} has the type {array.dtype}; convert it to numbers, or to words and declare categories")


def words_of(values: Any) -> list[str]:
    import numpy as np
    array = np.asarray(values)
    if array.ndim != 1:
        refuse(f"labels and columns must have one dimension; found {array.ndim}")
    return [word_of(value) for value in array.tolist()]


def word_of(value: Any) -> str:
    """A value as a configuration spells it: 1 and 1.0 are "1", a missing value is empty."""
    if _is_missing(value):
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    word = str(value)
    try:
        word.encode()
    except UnicodeEncodeError:
        refuse(f"{word!r} is not valid Unicode text; remove the lone surrogate")
    return word


def _is_missing(value: Any) -> bool:
    return value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and math.isnan(value))


# ---------------------------------------------------------------- the section `data`


def declared_bounds(bounds: Bounds, names: Sequence[str]) -> dict[str, list[float]]:
    """[lower, upper] by column. bounds: a dictionary by name or place; or a pair of numbers, or of arrays with one number per
    column."""
    import numpy as np
    if bounds is None:
        return {}
    if isinstance(bounds, Mapping):
        out = {}
        for key, pair in bounds.items():
            name = names[key] if isinstance(key, int) and -len(names) <= key < len(names) else str(key)
            if name not in names:
                refuse(f"bounds names {key!r}, which is not a column of X; its columns are {', '.join(names[:20])}")
            out[name] = _pair(f"bounds of {name}", pair)
        return out
    try:
        lower, upper = (np.broadcast_to(np.asarray(end, dtype=float), len(names)) for end in bounds)
    except (TypeError, ValueError):
        refuse(f"bounds must be (lower, upper), each one number or one number per column ({len(names)}), or a dictionary "
               "column → (lower, upper)")
    return {name: _pair(f"bounds of {name}", pair) for name, pair in zip(names, zip(lower, upper))}


def _pair(what: str, pair: Any) -> list[float]:
    try:
        lower, upper = (float(end) for end in pair)
    except (TypeError, ValueError):
        refuse(f"{what} must be (lower, upper); found {pair!r}")
    if not (math.isfinite(lower) and math.isfinite(upper) and lower < upper):
        refuse(f"{what} are [{lower}, {upper}]; declare a lower and a larger upper bound, both finite, from what is known "
               "about the quantity, not from the data")
    return [lower, upper]


def data_section(names: Sequence[str], y: Any, *, bounds: Bounds, categories: Mapping[Any, Sequence[Any]] | None,
                 classes: Any, label_bounds: Sequence[float] | None) -> tuple[dict[str, Any], list[str]]:
    """Keys of the section `data`, and notes for the user. Only names and types are taken from the data."""
    vocabularies: dict[str, list[str]] = {}
    for key, vocabulary in (categories or {}).items():
        name = names[key] if isinstance(key, int) and -len(names) <= key < len(names) else str(key)
        if name not in names:
            refuse(f"categories names {key!r}, which is not a column of X; its columns are {', '.join(names[:20])}")
        vocabularies[name] = [word_of(word) for word in vocabulary]
    numeric = {name: pair for name, pair in declared_bounds(bounds, names).items() if name not in vocabularies}
    label = "y"
    while label in names:
        label += "_"
    keys: dict[str, Any] = {"data.format": "csv", "data.label": label}
    if numeric:
        keys["data.numeric"] = numeric
    if vocabularies:
        keys["data.categorical"] = vocabularies
    unknown = [name for name in names if name not in numeric and name not in vocabularies]
    if unknown:
        keys["data.private_bounds"] = unknown
    words, notes = declared_classes(y, classes, label_bounds)
    if words is None:
        keys["data.label_bounds"] = _pair("label_bounds", label_bounds)
    else:
        keys["data.classes"] = words
    return keys, notes


def declared_classes(y: Any, classes: Any, label_bounds: Any) -> tuple[list[str] | None, list[str]]:
    """The words of the label in their order, or None if it is a number; and notes for the user."""
    import numpy as np
    if label_bounds is not None:
        if classes is not None:
            refuse("classes and label_bounds are both set; use classes to classify, or label_bounds to predict a number")
        return None, []
    if classes is None:
        if np.asarray(y).dtype == bool:
            return ["False", "True"], []
        refuse("classes is missing; list every label that a record may have, as in classes=[0, 1], or set label_bounds=(lower, "
               "upper) if the label is a number. classes='public' treats the labels found in y as public knowledge")
    if isinstance(classes, str):
        if classes != "public":
            refuse(f"classes is {classes!r}; it must be a list of labels, or 'public'")
        found = np.unique(np.asarray(y)) if np.asarray(y).dtype.kind != "O" else sorted(set(words_of(y)))
        return [word_of(value) for value in np.asarray(found).tolist()], [
            "classes='public': the set of labels was taken from y as public knowledge; the guarantee does not cover it"]
    return [word_of(value) for value in np.asarray(classes).ravel().tolist()], []
