"""Per-record gradients of one parameter, in whichever form is cheapest to measure and to sum.

A piece has the gradients x_1 … x_n of n records. `norm2()` gives upper estimates of |x_i|² in float64, `weighted(s)` the
sum of s_i x_i, `explicit(rows)` the gradients themselves, for a few records. Nothing here decides what is private.

Rounding. Norms are formed in float64 from matrix products of the precision of the model. What such products lose is
covered by a margin of MARGIN·(|x_i|² + Σ_t |a_t|²|g_t|²), many times what is seen (tests/test_torch_rounding.py); that
products are not worse is assumed, as the run's trace says.
"""

from __future__ import annotations

import torch

from discreet import _core

MARGIN = {torch.float32: 2.0**-17, torch.float64: 2.0**-45}
# Elements of per-record gradients formed at a time.
CHUNK = 1 << 22


def squares(rows: torch.Tensor) -> torch.Tensor:
    """|row|² in float64 along all dimensions but the first."""
    flat = rows.reshape(rows.shape[0], -1)
    if not flat.is_contiguous():
        flat = flat.contiguous()
    # One thread: others would wait for those of PyTorch, which wait actively.
    return torch.from_numpy(_core.row_norms(flat.detach())).square_()


def up(norm2: torch.Tensor, dtype: torch.dtype, terms: torch.Tensor | None = None) -> torch.Tensor:
    if terms is None:
        return norm2.mul_(1 + 2 * MARGIN[dtype])
    return norm2 * (1 + MARGIN[dtype]) + MARGIN[dtype] * terms


class Explicit:
    """The gradients themselves, [n, ...]."""

    def __init__(self, gradients: torch.Tensor, norm2: torch.Tensor | None = None) -> None:
        self.gradients, self._norm2 = gradients, norm2

    def norm2(self) -> torch.Tensor:
        known = squares(self.gradients) if self._norm2 is None else self._norm2.clone()
        return up(known, self.gradients.dtype)

    def weighted(self, scales: torch.Tensor) -> torch.Tensor:
        return (scales @ self.gradients.flatten(1)).view(self.gradients.shape[1:])

    def explicit(self, rows: slice) -> torch.Tensor:
        return self.gradients[rows]


class Outer:
    """x_i = Σ_t g_it a_itᵀ: of a matrix that was multiplied with a [n, T, d] and has the output gradient g [n, T, p]."""

    def __init__(self, a: torch.Tensor, g: torch.Tensor, g2: torch.Tensor | None = None) -> None:
        self.a, self.g, self._g2 = a, g, g2

    def norm2(self) -> torch.Tensor:
        if self.a.shape[1] == 1:
            a2 = squares(self.a)
            norm2 = a2 * (squares(self.g) if self._g2 is None else self._g2)
            # Scaled by more than 1 such a record could overflow, and its zeros become NaN: it is left out.
            return up(norm2.masked_fill_(a2 > 1e60, float("inf")), self.g.dtype)
        gram = torch.bmm(self.a, self.a.transpose(1, 2)).mul_(torch.bmm(self.g, self.g.transpose(1, 2)))
        terms = gram.diagonal(dim1=1, dim2=2).sum(1, dtype=torch.float64)
        return up(gram.sum((1, 2), dtype=torch.float64).clamp_(min=0), self.g.dtype, terms)

    def weighted(self, scales: torch.Tensor) -> torch.Tensor:
        by_record = scales.view(-1, 1, 1)
        a, g = (self.a, self.g * by_record) if self.g.shape[2] <= self.a.shape[2] else (self.a * by_record, self.g)
        return g.flatten(0, 1).t() @ a.flatten(0, 1)

    def explicit(self, rows: slice) -> torch.Tensor:
        return torch.bmm(self.g[rows].transpose(1, 2), self.a[rows])

    def cheapest(self):
        """Itself, or the explicit gradients: where these are smaller than a and g they are also formed and read faster
        than the two products of all pairs of positions."""
        n, positions, d = self.a.shape
        p = self.g.shape[2]
        if positions == 1 or d * p > 2 * positions * (d + p) or 40 * d * p > positions**2 * (d + p):
            return self
        return Explicit(self.explicit(slice(0, n)))


class Rows:
    """x_i has the row g_it added at ids_it: of a table of `size` rows that was looked up. ids [n, T], g [n, T, d]."""

    def __init__(self, ids: torch.Tensor, g: torch.Tensor, size: int) -> None:
        self.ids, self.g, self.size = ids, g, size

    def norm2(self) -> torch.Tensor:
        n, positions, d = self.g.shape
        record = torch.arange(n).view(n, 1)
        keys, where = torch.unique((record * self.size + self.ids).flatten(), return_inverse=True)
        rows = self.g.new_zeros(len(keys), d).index_add_(0, where, self.g.flatten(0, 1))
        record = keys // self.size
        total = torch.zeros(n, dtype=torch.float64).index_add_(0, record, squares(rows))
        terms = squares(self.g.flatten(0, 1)).view(n, positions).sum(1)
        return up(total, self.g.dtype, terms)

    def weighted(self, scales: torch.Tensor) -> torch.Tensor:
        g = (self.g * scales.view(-1, 1, 1)).flatten(0, 1)
        return g.new_zeros(self.size, g.shape[1]).index_add_(0, self.ids.flatten(), g)

    def explicit(self, rows: slice) -> torch.Tensor:
        ids, g = self.ids[rows], self.g[rows]
        record = torch.arange(len(ids)).view(-1, 1)
        out = g.new_zeros(len(ids) * self.size, g.shape[2])
        return out.index_add_(0, (record * self.size + ids).flatten(), g.flatten(0, 1)).view(
            len(ids), self.size, -1)


class Sum:
    """x_i is the sum of several pieces: of a parameter that was used more than once."""

    def __init__(self, pieces: list, shape: torch.Size) -> None:
        self.pieces, self.shape = pieces, shape

    def norm2(self) -> torch.Tensor:
        if len(self.pieces) == 2 and {type(piece) for piece in self.pieces} == {Outer, Rows}:
            return self._table_and_head()
        if all(isinstance(piece, Outer) for piece in self.pieces):
            return Outer(torch.cat([piece.a for piece in self.pieces], 1),
                         torch.cat([piece.g for piece in self.pieces], 1)).norm2()
        n = len(self.pieces[0].norm2())
        step = max(1, CHUNK // max(1, self.shape.numel()))
        out = torch.zeros(n, dtype=torch.float64)
        for begin in range(0, n, step):
            rows = slice(begin, begin + step)
            out[rows] = squares(sum(piece.explicit(rows).reshape(-1, *self.shape) for piece in self.pieces))
        return up(out, MARGIN_OF(self.pieces[0]), sum(piece.norm2() for piece in self.pieces))

    def _table_and_head(self) -> torch.Tensor:
        # An output layer with the weights of the embedding: <head_i, table_i> = Σ_ts g_it[ids_is] (a_it · h_is).
        head, table = sorted(self.pieces, key=lambda piece: isinstance(piece, Rows))
        own = [head.norm2(), table.norm2()]
        chosen = torch.gather(head.g, 2, table.ids.unsqueeze(1).expand(-1, head.g.shape[1], -1))
        cross = chosen.mul_(torch.bmm(head.a, table.g.transpose(1, 2))).sum((1, 2), dtype=torch.float64)
        return up((own[0] + own[1] + 2 * cross).clamp_(min=0), head.g.dtype, own[0] + own[1])

    def weighted(self, scales: torch.Tensor) -> torch.Tensor:
        return sum(piece.weighted(scales).view(self.shape) for piece in self.pieces)


def MARGIN_OF(piece) -> torch.dtype:
    return (piece.gradients if isinstance(piece, Explicit) else piece.g).dtype
