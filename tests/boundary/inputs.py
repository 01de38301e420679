"""Records of the zoo: (input, weight). Each set holds one record that is far from the others, the last."""

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import default_collate

WIDTH, LENGTH, WORDS = 6, 5, 12


def _weighted(inputs: list) -> list:
    return [(x, torch.tensor(0.25 * 2.0 ** (i % 5))) for i, x in enumerate(inputs)]


def vectors(n: int, *shape: int) -> list:
    g = torch.Generator().manual_seed(5)
    xs = list(torch.randn(n, *(shape or (WIDTH,)), generator=g))
    xs[-1] = 9 * xs[-1] + 3
    return _weighted(xs)


def sequences(n: int) -> list:
    return vectors(n, LENGTH, WIDTH)


def images(n: int) -> list:
    return vectors(n, 3, 6, 6)


def signals(n: int) -> list:
    return vectors(n, 3, 9)


def volumes(n: int) -> list:
    return vectors(n, 2, 4, 4, 4)


def ids(n: int) -> list:
    g = torch.Generator().manual_seed(6)
    rows = torch.randint(1, WORDS, (n, LENGTH), generator=g)
    rows[-1] = WORDS - 1
    return _weighted(list(rows))


def ragged(n: int) -> list:
    """Token ids of several lengths, for padded(). The last is the longest; the first three are equally long, and so is the
    mean of all others; with the last one it divides as well."""
    g = torch.Generator().manual_seed(7)
    lengths = [3, 3, 3] + [(1, 5)[i % 2] for i in range(n - 4)] + [n + 3]
    if n % 2:
        lengths[3] = 3
    return _weighted([torch.randint(1, WORDS, (k,), generator=g) for k in lengths])


def padded(records: list):
    """A collate function: token ids padded with 0 to the longest of the batch."""
    xs, weights = zip(*records)
    return pad_sequence(list(xs), batch_first=True), default_collate(list(weights))


def padded_mask(records: list):
    """As dictionaries: ids and their attention mask."""
    x, weights = padded(records)
    return {"ids": x, "mask": (x != 0)}, weights


def padded_labels(records: list):
    """As Hugging Face's collators: labels are the ids, -100 where padded."""
    x, weights = padded(records)
    return {"ids": x, "labels": x.masked_fill(x == 0, -100)}, weights
