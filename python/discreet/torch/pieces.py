"""Per-record gradients of one parameter, in the form that is cheapest to measure and to sum.

A piece has the gradients x_1 … x_n of n records. `add_norm2(total)` adds upper estimates of |x_i|² to n float64 numbers,
`weighted(w)` returns the sum of w_i x_i in float64, `explicit(rows)` the gradients themselves, for a few records. Nothing
here decides what is private.

Rounding. Norms are never below those of the vectors that `weighted` sums (of the factors, or of explicit gradients), up to
the rounding of that sum. Proof: ghost.md (pairs, sums of vectors, several uses). It assumes that in PyTorch's float64 products
and sums a term is rounded at most as often as there are terms, in any order. The core computes the sums in float64; only
products of large float32 matrices with several positions are first added in float32, 32 positions at a time
(record_sums.h).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from discreet import _core
from discreet.torch.errors import refuse

core: Any = _core  # it takes every array that has __dlpack__; its stub says NumPy's
UNIT = 2.0**-53
# The number of elements of per-record gradients that are formed at once.
CHUNK = 1 << 22


def add_squares(total: torch.Tensor, rows: torch.Tensor) -> None:
    """total += |row|² along all dimensions but the first, from above."""
    n = total.shape[0]
    if rows.shape[0] != n:
        refuse(f"a rule returned the gradients of {rows.shape[0]} records, but the batch has {n}; it must return one per "
               "record")
    rows = (rows if rows.dtype in (torch.float32, torch.float64) else rows.float()).contiguous()
    core.add_row_squares(total, rows.detach())


def norms(rows: torch.Tensor) -> torch.Tensor:
    """Norms along the last dimension, from above up to one rounding."""
    total = torch.zeros(rows.shape[:-1].numel(), dtype=torch.float64)
    add_squares(total, rows.reshape(-1, rows.shape[-1]))
    return total.sqrt_().view(rows.shape[:-1])


def add_placed(total: torch.Tensor, g: torch.Tensor, places: torch.Tensor | None) -> None:
    """total += |x|², where the rows of g [n, T, d] are summed by their places [n, T], or all together."""
    places = places if places is None else places.long().contiguous()
    core.add_placed_squares(total, g.detach().contiguous(), places)


def add_rows(total: torch.Tensor | None, weights: torch.Tensor, g: torch.Tensor, places: torch.Tensor | None,
             count: int) -> torch.Tensor:
    """total [count, d] += the rows of g [n, T, d], weighted by record, at their places [n, T]."""
    total = torch.zeros(count, g.shape[2], dtype=torch.float64) if total is None else total
    places = places if places is None else places.long().contiguous()
    core.add_placed_sum(total, weights, g.detach().contiguous(), places, count)
    return total


class Piece:
    def weighted(self, weights: torch.Tensor, total: torch.Tensor | None = None) -> torch.Tensor:
        """The sum of weights_i x_i, added to `total` if given. Both are contiguous float64 tensors. A record with weight 0 is
        not read."""
        raise NotImplementedError

    def add_norm2(self, total: torch.Tensor) -> None:
        raise NotImplementedError

    def norm2(self, n: int) -> torch.Tensor:
        total = torch.zeros(n, dtype=torch.float64)
        self.add_norm2(total)
        return total

    def terms(self) -> tuple[int, torch.Tensor]:
        """The number of terms that a coordinate sums, and the sum of their norms for every record."""
        raise NotImplementedError

    def widened(self, rows: slice) -> Piece:
        """The same for a few records, in float64."""
        raise NotImplementedError

    def explicit(self, rows: slice) -> torch.Tensor:
        raise NotImplementedError


class Explicit(Piece):
    """The gradients themselves, [n, ...]."""

    def __init__(self, gradients: torch.Tensor) -> None:
        self.gradients = gradients.contiguous()

    def add_norm2(self, total: torch.Tensor) -> None:
        add_squares(total, self.gradients)

    def weighted(self, weights: torch.Tensor, total: torch.Tensor | None = None) -> torch.Tensor:
        rows = self.gradients.reshape(len(weights), 1, -1)
        return add_rows(total, weights, rows, None, 1).view(self.gradients.shape[1:])

    def explicit(self, rows: slice) -> torch.Tensor:
        return self.gradients[rows]

    def terms(self) -> tuple[int, torch.Tensor]:
        return 1, norms(self.gradients.reshape(len(self.gradients), -1))

    def widened(self, rows: slice) -> Explicit:
        return Explicit(self.gradients[rows].double())


class Column(Piece):
    """x_i = Σ_t g_it: the gradient of a bias with output gradients g [n, T, p]."""

    def __init__(self, g: torch.Tensor) -> None:
        self.g = g

    def add_norm2(self, total: torch.Tensor) -> None:
        add_placed(total, self.g, None)

    def weighted(self, weights: torch.Tensor, total: torch.Tensor | None = None) -> torch.Tensor:
        return add_rows(total, weights, self.g, None, 1).view(-1)

    def explicit(self, rows: slice) -> torch.Tensor:
        return self.g[rows].sum(1)

    def terms(self) -> tuple[int, torch.Tensor]:
        return self.g.shape[1], norms(self.g).sum(1)

    def widened(self, rows: slice) -> Column:
        return Column(self.g[rows].double())


class Outer(Piece):
    """x_i = Σ_t g_it a_itᵀ: the gradient of a matrix with inputs a [n, T, d] and output gradients g [n, T, p]."""

    def __init__(self, a: torch.Tensor, g: torch.Tensor) -> None:
        self.a, self.g = a, g

    def add_norm2(self, total: torch.Tensor, bias: bool = False) -> None:
        """bias: include the Column of the same g."""
        core.add_outer_squares(total, self.a.detach().contiguous(), self.g.detach().contiguous(), bias)

    def weighted(self, weights: torch.Tensor, total: torch.Tensor | None = None) -> torch.Tensor:
        first = total is None
        if total is None:
            total = torch.empty(self.g.shape[2], self.a.shape[2], dtype=torch.float64)
        core.add_outer_sum(total, weights, self.a.detach().contiguous(), self.g.detach().contiguous(), first)
        return total

    def explicit(self, rows: slice) -> torch.Tensor:
        return torch.bmm(self.g[rows].transpose(1, 2), self.a[rows])

    def terms(self) -> tuple[int, torch.Tensor]:
        return self.g.shape[1], (norms(self.a) * norms(self.g)).sum(1)

    def widened(self, rows: slice) -> Outer:
        return Outer(self.a[rows].double(), self.g[rows].double())

    def cheapest(self) -> Piece:
        """This piece, or the explicit gradients: if these are smaller than a and g, forming and reading them is also faster
        than the products of all pairs of positions."""
        n, positions, d = self.a.shape
        p = self.g.shape[2]
        if positions == 1 or d * p > positions * (d + p) or 80 * d * p > positions**2 * (d + p):
            return self
        return Explicit(self.explicit(slice(0, n)))


class Rows(Piece):
    """x_i has the row g_it added at ids_it: the gradient of a look-up table of `size` rows. ids [n, T], g [n, T, d]."""

    def __init__(self, ids: torch.Tensor, g: torch.Tensor, size: int) -> None:
        self.ids, self.g, self.size = ids, g, size

    def add_norm2(self, total: torch.Tensor) -> None:
        add_placed(total, self.g, self.ids)

    def weighted(self, weights: torch.Tensor, total: torch.Tensor | None = None) -> torch.Tensor:
        return add_rows(total, weights, self.g, self.ids, self.size)

    def explicit(self, rows: slice) -> torch.Tensor:
        ids, g = self.ids[rows], self.g[rows]
        record = torch.arange(len(ids)).view(-1, 1)
        out = g.new_zeros(len(ids) * self.size, g.shape[2])
        return out.index_add_(0, (record * self.size + ids).flatten(), g.flatten(0, 1)).view(
            len(ids), self.size, -1)

    def terms(self) -> tuple[int, torch.Tensor]:
        return self.g.shape[1], norms(self.g).sum(1)

    def widened(self, rows: slice) -> Rows:
        return Rows(self.ids[rows], self.g[rows].double(), self.size)


class Sum(Piece):
    """x_i is the sum of several pieces: the gradient of a parameter that is used more than once."""

    def __init__(self, pieces: Sequence[Piece], shape: torch.Size) -> None:
        self.pieces, self.shape = pieces, shape

    def add_norm2(self, total: torch.Tensor) -> None:
        pieces = _joined(self.pieces)
        if len(pieces) == 1:
            pieces[0].add_norm2(total)
        elif len(pieces) == 2 and isinstance(pieces[0], Outer) and isinstance(pieces[1], Rows):
            self._add_table_and_head(total, pieces[0], pieces[1])
        else:
            self._add_explicit(total, pieces)

    def _add_explicit(self, total: torch.Tensor, pieces: Sequence[Piece]) -> None:
        counts, sizes = zip(*(piece.terms() for piece in pieces))
        error: torch.Tensor = 1.01 * (sum(counts) + len(pieces) + 8) * UNIT * sum(sizes)
        step = max(1, CHUNK // max(1, self.shape.numel()))
        for begin in range(0, total.shape[0], step):
            rows = slice(begin, begin + step)
            x: Any = sum(piece.widened(rows).explicit(slice(None)).reshape(-1, *self.shape) for piece in pieces)
            total[rows] += (norms(x.reshape(len(x), -1)) + error[rows]).square_().mul_(1 + 2.0**-44)

    def _add_table_and_head(self, total: torch.Tensor, head: Outer, table: Rows) -> None:
        # An output layer that shares its weights with the embedding: <head_i, table_i> = Σ_ts g_it[ids_is] (a_it · h_is).
        (n, heads, width), looked_up = head.a.shape, table.g.shape[1]
        own = head.norm2(n) + table.norm2(n)
        error = 1.01 * (width + heads * looked_up + 8) * UNIT
        # Norms below 2^-400 could lose more than that to underflow.
        of_a, of_h = norms(head.a).add_(2.0**-400), norms(table.g).add_(2.0**-400)
        step = max(1, CHUNK // max(1, heads * looked_up))
        for begin in range(0, n, step):
            rows = slice(begin, begin + step)
            ids = table.ids[rows].long().unsqueeze(1).expand(-1, heads, -1)
            chosen = torch.gather(head.g[rows], 2, ids).double()
            cross = torch.bmm(head.a[rows].double(), table.g[rows].double().transpose(1, 2)).mul_(chosen).sum((1, 2))
            size = (torch.bmm(of_a[rows].unsqueeze(1), chosen.abs_()).squeeze(1) * of_h[rows]).sum(1)
            together = (own[rows] + 2 * cross + 2 * error * size).clamp_(min=0)
            total[rows] += together + 2.0**-48 * own[rows]

    def weighted(self, weights: torch.Tensor, total: torch.Tensor | None = None) -> torch.Tensor:
        for piece in self.pieces:
            total = piece.weighted(weights, total)
        assert total is not None
        return total.view(self.shape)


def _joined(pieces: Sequence[Piece]) -> list[Piece]:
    """Joins pieces of one kind along their positions. Order: explicit ones, outer, column, rows."""
    out: list[Piece] = [piece for piece in pieces if isinstance(piece, Explicit)]
    if outers := [piece for piece in pieces if isinstance(piece, Outer)]:
        out.append(Outer(torch.cat([x.a for x in outers], 1), torch.cat([x.g for x in outers], 1)))
    if columns := [piece for piece in pieces if isinstance(piece, Column)]:
        out.append(Column(torch.cat([x.g for x in columns], 1)))
    if tables := [piece for piece in pieces if isinstance(piece, Rows)]:
        out.append(Rows(torch.cat([x.ids for x in tables], 1), torch.cat([x.g for x in tables], 1), tables[0].size))
    return out
