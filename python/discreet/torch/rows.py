"""How the rows that a layer sees belong to records. The number of rows per record is fixed, or the product of dimensions of
the module's inputs. A number that merely divides the row count proves nothing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import torch

from discreet.torch.errors import layer, refuse

BROADCAST = "broadcast"  # the same rows for all records
Shapes = Sequence[torch.Size]
Term = tuple[int, tuple[int, ...]]  # an input, and some of its dimensions
MOST_INPUTS, MOST_FACTORS = 8, 3


class RowsPerRecord:
    """The possible numbers. fixed: constants. products: (input, dimensions) whose product is the number."""

    def __init__(self, fixed: Sequence[int] = (), products: Sequence[Term] = ()) -> None:
        self.fixed, self.products = tuple(fixed), tuple(products)

    def of(self, rows: int, records: int, shapes: Shapes) -> int | None:
        """The number of rows of each record; None if the rows do not belong to the records."""
        if records == 0 or rows == records and 1 in self.fixed:
            return 1
        allowed = {*self.fixed, *(_product(shapes, term) for term in self.products if _has(shapes, term))}
        return rows // records if rows % records == 0 and rows // records in allowed else None

    def __repr__(self) -> str:
        return f"RowsPerRecord({list(self.fixed)}, {list(self.products)})"


ONE = RowsPerRecord([1])


def _has(shapes: Shapes, term: Term) -> bool:
    return term[0] < len(shapes) and term[1][-1] < len(shapes[term[0]])


def _product(shapes: Shapes, term: Term) -> int:
    out = 1
    for dim in term[1]:
        out *= shapes[term[0]][dim]
    return out


def _terms(shapes: Shapes) -> Iterator[Term]:
    for i, shape in enumerate(shapes[:MOST_INPUTS]):
        dims = range(1, len(shape))
        for count in range(1, min(len(shape), MOST_FACTORS + 1)):
            yield from ((i, some) for some in itertools.combinations(dims, count))


def learn(name: str, kind: str, batch: set[int], shapes: Shapes, alone: list[tuple[set[int], Shapes]],
          may_share: bool) -> RowsPerRecord | str:
    """Derives the rule from the row counts and the shapes of the module's inputs, in a batch and for each record alone."""
    n = len(alone)
    few = [rows for rows, _ in alone]
    fixed: list[int] = []
    products: set[Term] = set()
    shared = 0
    for place, rows in enumerate(sorted(batch)):
        per_record = [sorted(own)[place] if len(own) == len(batch) else -1 for own in few]
        if rows == n * max(per_record):
            if len(set(per_record)) == 1:
                fixed.append(per_record[0])
            terms = [term for term in _terms(shapes) if _product(shapes, term) * n == rows and all(
                _has(of, term) and _product(of, term) == own for own, (_, of) in zip(per_record, alone))]
            products.update(terms)
            if terms or len(set(per_record)) == 1:
                continue
        elif rows == max(per_record) and (rows == 1 or may_share):
            shared += 1
            continue
        refuse(f"{layer(name)} ({kind}) sees {sorted(batch)} rows for {n} records, and {sorted(set().union(*few))} for one "
               "record alone, so the rows of each record cannot be determined. Give every record the same number of rows, "
               "including padding, with the records in the first dimension")
    if shared and shared < len(batch):
        refuse(f"{layer(name)} ({kind}) sees rows of records in one call and rows that all records share in another; use two "
               "layers")
    return BROADCAST if shared else RowsPerRecord(fixed, sorted(products))
