"""Per-record gradients of one parameter, in whichever form is cheapest to measure and to sum.

A piece has the gradients x_1 … x_n of n records. `add_norm2(total)` adds upper estimates of |x_i|² to n numbers of float64,
`weighted(s)` gives the sum of s_i x_i, `explicit(rows)` the gradients themselves, for a few records. Nothing here decides
what is private.

Rounding. Norms of Outer and Explicit are never below those of the factors they are given (pair_norms.h). Where sums of
PyTorch's stand before that (Column, Rows, a parameter used more than once), a margin of MARGIN·Σ |terms|² is added, many times
what is seen (tests/test_torch_exact.py); that they are not worse is assumed, as the run's trace says.
"""

from __future__ import annotations

import torch

from discreet import _core
from discreet.torch.errors import refuse

MARGIN = {torch.float32: 2.0**-17, torch.float64: 2.0**-45}
# Elements of per-record gradients formed at a time.
CHUNK = 1 << 22


def add_squares(total: torch.Tensor, rows: torch.Tensor) -> None:
    """total += |row|² along all dimensions but the first, from above."""
    n = total.shape[0]
    if rows.shape[0] != n:
        refuse(f"gradients of {rows.shape[0]} records where the batch has {n}; a rule gives one a record")
    rows = (rows if rows.dtype in MARGIN else rows.float()).contiguous()
    _core.add_row_squares(total.data_ptr(), rows.data_ptr(), n, rows.numel() // max(1, n), rows.dtype == torch.float64)


def squares(rows: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(rows.shape[0], dtype=torch.float64)
    add_squares(total, rows)
    return total


class Piece:
    def add_norm2(self, total: torch.Tensor) -> None:
        raise NotImplementedError

    def norm2(self, n: int) -> torch.Tensor:
        total = torch.zeros(n, dtype=torch.float64)
        self.add_norm2(total)
        return total


class Explicit(Piece):
    """The gradients themselves, [n, ...]."""

    def __init__(self, gradients: torch.Tensor) -> None:
        self.gradients = gradients

    def add_norm2(self, total: torch.Tensor) -> None:
        add_squares(total, self.gradients)

    def weighted(self, scales: torch.Tensor) -> torch.Tensor:
        return (scales @ self.gradients.flatten(1)).view(self.gradients.shape[1:])

    def explicit(self, rows: slice) -> torch.Tensor:
        return self.gradients[rows]


class Column(Piece):
    """x_i = Σ_t g_it: of a bias whose outputs have the gradient g [n, T, p]."""

    def __init__(self, g: torch.Tensor) -> None:
        self.g = g

    def add_norm2(self, total: torch.Tensor) -> None:
        add_squares(total, self.g.sum(1))

    def weighted(self, scales: torch.Tensor) -> torch.Tensor:
        positions = self.g.shape[1]
        return (scales if positions == 1 else scales.repeat_interleave(positions)) @ self.g.flatten(0, 1)

    def explicit(self, rows: slice) -> torch.Tensor:
        return self.g[rows].sum(1)


class Outer(Piece):
    """x_i = Σ_t g_it a_itᵀ: of a matrix that was multiplied with a [n, T, d] and has the output gradient g [n, T, p]."""

    def __init__(self, a: torch.Tensor, g: torch.Tensor) -> None:
        self.a, self.g = a, g

    def add_norm2(self, total: torch.Tensor, bias: bool = False) -> None:
        """bias: together with the Column of the same g."""
        a, g = self.a.contiguous(), self.g.contiguous()
        n, positions, d = a.shape
        assert a.dtype == g.dtype and g.shape[:2] == (n, positions) and total.shape == (n,)
        _core.add_outer_squares(total.data_ptr(), a.data_ptr(), g.data_ptr(), n, positions, d, g.shape[2], bias,
                                g.dtype == torch.float64)

    def weighted(self, scales: torch.Tensor) -> torch.Tensor:
        by_record = scales.view(-1, 1, 1)
        a, g = (self.a, self.g * by_record) if self.g.shape[2] <= self.a.shape[2] else (self.a * by_record, self.g)
        return g.flatten(0, 1).t() @ a.flatten(0, 1)

    def explicit(self, rows: slice) -> torch.Tensor:
        return torch.bmm(self.g[rows].transpose(1, 2), self.a[rows])

    def cheapest(self):
        """Itself, or the explicit gradients: where these are smaller than a and g they are also formed and read faster
        than the products of all pairs of positions."""
        n, positions, d = self.a.shape
        p = self.g.shape[2]
        if positions == 1 or d * p > positions * (d + p) or 80 * d * p > positions**2 * (d + p):
            return self
        return Explicit(self.explicit(slice(0, n)))


class Rows(Piece):
    """x_i has the row g_it added at ids_it: of a table of `size` rows that was looked up. ids [n, T], g [n, T, d]."""

    def __init__(self, ids: torch.Tensor, g: torch.Tensor, size: int) -> None:
        self.ids, self.g, self.size = ids, g, size

    def add_norm2(self, total: torch.Tensor) -> None:
        n, positions, d = self.g.shape
        record = torch.arange(n).view(n, 1)
        keys, where = torch.unique((record * self.size + self.ids).flatten(), return_inverse=True)
        rows = self.g.new_zeros(len(keys), d).index_add_(0, where, self.g.flatten(0, 1))
        total.index_add_(0, keys // self.size, squares(rows))
        total.add_(squares(self.g), alpha=MARGIN[self.g.dtype])

    def weighted(self, scales: torch.Tensor) -> torch.Tensor:
        g = (self.g * scales.view(-1, 1, 1)).flatten(0, 1)
        return g.new_zeros(self.size, g.shape[1]).index_add_(0, self.ids.flatten(), g)

    def explicit(self, rows: slice) -> torch.Tensor:
        ids, g = self.ids[rows], self.g[rows]
        record = torch.arange(len(ids)).view(-1, 1)
        out = g.new_zeros(len(ids) * self.size, g.shape[2])
        return out.index_add_(0, (record * self.size + ids).flatten(), g.flatten(0, 1)).view(
            len(ids), self.size, -1)


class Sum(Piece):
    """x_i is the sum of several pieces: of a parameter that was used more than once."""

    def __init__(self, pieces: list, shape: torch.Size) -> None:
        self.pieces, self.shape = pieces, shape

    def add_norm2(self, total: torch.Tensor) -> None:
        n = total.shape[0]
        if len(self.pieces) == 2 and {type(piece) for piece in self.pieces} == {Outer, Rows}:
            self._add_table_and_head(total)
        elif all(isinstance(piece, Outer) for piece in self.pieces):
            Outer(torch.cat([piece.a for piece in self.pieces], 1),
                  torch.cat([piece.g for piece in self.pieces], 1)).add_norm2(total)
        else:
            step = max(1, CHUNK // max(1, self.shape.numel()))
            for begin in range(0, n, step):
                rows = slice(begin, begin + step)
                add_squares(total[rows], sum(piece.explicit(rows).reshape(-1, *self.shape) for piece in self.pieces))
            total.add_(sum(piece.norm2(n) for piece in self.pieces), alpha=MARGIN[_dtype_of(self.pieces[0])])

    def _add_table_and_head(self, total: torch.Tensor) -> None:
        # An output layer with the weights of the embedding: <head_i, table_i> = Σ_ts g_it[ids_is] (a_it · h_is).
        head, table = sorted(self.pieces, key=lambda piece: isinstance(piece, Rows))
        own = head.norm2(total.shape[0]) + table.norm2(total.shape[0])
        chosen = torch.gather(head.g, 2, table.ids.unsqueeze(1).expand(-1, head.g.shape[1], -1))
        cross = chosen.mul_(torch.bmm(head.a, table.g.transpose(1, 2))).sum((1, 2), dtype=torch.float64)
        together = (own + 2 * cross).clamp_(min=0)
        total.add_(together).add_(together + own, alpha=MARGIN[head.g.dtype])

    def weighted(self, scales: torch.Tensor) -> torch.Tensor:
        return sum(piece.weighted(scales).view(self.shape) for piece in self.pieces)


def _dtype_of(piece) -> torch.dtype:
    return (piece.gradients if isinstance(piece, Explicit) else piece.g).dtype
