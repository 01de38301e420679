"""Batches drawn by the core's sampler, whose distribution its accountant knows."""

from __future__ import annotations

import math
import operator
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler

from discreet.torch.errors import refuse
from discreet.torch.secret_draws import SecretDraws, Worker

if TYPE_CHECKING:
    from discreet._core import Sampler

Drawn = deque[tuple[int, int, int, bool]]  # for each piece: step, place in the batch, number of records, whether it is the last


def count_of(name: str, value: Any, why: str) -> int:
    """An integer of at least 1; also accepts 1e3."""
    try:
        number = int(value) if isinstance(value, float) and value.is_integer() else operator.index(value)
    except TypeError:
        number = 0
    if number < 1:
        refuse(f"{name} is {value!r}; it must be an integer of at least 1, {why}")
    return number


def count_of_piece(value: Any) -> int | None:
    return None if value is None else count_of("max_physical_batch_size", value, "or None for batches in one piece")


def check_loader(loader: DataLoader[Any]) -> None:
    """Rejects a loader whose batches cannot be accounted for."""
    if not isinstance(loader, DataLoader):
        refuse(f"data_loader is a {type(loader).__name__}; it must be a torch.utils.data.DataLoader")
    if isinstance(loader.dataset, IterableDataset):
        refuse("the data set is iterable, so its records cannot be drawn at random; use one with __getitem__ and __len__")
    if loader.batch_size is None:
        refuse("the loader has its own batch sampler, or none, so the probability of drawing a record is unknown; pass "
               "DataLoader(dataset, batch_size=..., shuffle=True), from which discreet draws its own batches")
    sampler = loader.sampler
    if isinstance(sampler, SequentialSampler):
        refuse("the loader keeps the order of the records, but batches must be drawn at random to be accounted for: use "
               "shuffle=True (discreet then draws them; it does not shuffle)")
    if type(sampler) is not RandomSampler:
        refuse(f"the loader uses a {type(sampler).__name__}, whose probabilities the accountant does not know; use "
               "shuffle=True, and select records with torch.utils.data.Subset")
    if sampler.replacement or sampler._num_samples is not None:
        refuse("the loader's RandomSampler draws with replacement, or its own number of records; use shuffle=True")


class Batches:
    """One epoch of batches of `mean` of `size` records on average, in at least `pieces` pieces of at most `most` records.

    The number of pieces is the same for every batch: if it followed from the records drawn, a scheduler or a counter in the
    loop would reveal their number. It has room for six standard deviations above the mean; the pieces of a batch beyond that
    (fewer than one in 10⁷, from a mean of 40) have more than `most` records.

    An empty piece is handed out with one record of the data set, which the engine counts as absent: it enters no sum. So the
    loop always gets at least one record, and its behaviour does not depend on whether any was drawn."""

    def __init__(self, sampler: Callable[[], Sampler], step: Callable[[], int], epoch: int, *, size: int, mean: int,
                 pieces: int = 1, most: int | None = None) -> None:
        self.sampler, self.step, self.epoch, self.size, self.mean = sampler, step, epoch, size, mean
        self.pieces, self.most = pieces, most
        self.drawn: Drawn = deque()

    @property
    def count(self) -> int:
        """Pieces of a batch; follows from public numbers alone."""
        if self.most is None:
            return self.pieces
        room = self.mean + 6 * math.sqrt(self.mean * (1 - self.mean / self.size))
        return max(self.pieces, math.ceil(min(room, self.size) / self.most))

    def cut(self, batch: list[int]) -> list[list[int]]:
        count = self.count
        return [batch[len(batch) * i // count:len(batch) * (i + 1) // count] for i in range(count)]

    def __iter__(self) -> Iterator[list[int]]:
        self.drawn = deque()
        return self._pieces(self.drawn)

    def _pieces(self, drawn: Drawn) -> Iterator[list[int]]:
        sampler, first = self.sampler(), self.step()
        # A loader that starts inside an epoch continues with the rest of it.
        for t in range(first, first - first % self.epoch + self.epoch):
            pieces = self.cut(sampler.batch(t).tolist())
            drawn.extend((t, i, len(piece), i == len(pieces) - 1) for i, piece in enumerate(pieces))
            yield from (piece or [0] for piece in pieces)

    def __len__(self) -> int:
        return self.epoch * self.count


class PrivateLoader(DataLoader[Any]):
    """Iterates over batches of the engine's sampler, one epoch at a time, and reports each batch to the engine."""

    def __init__(self, loader: DataLoader[Any], batches: Batches, begin: Callable[[], int], check: Callable[[int], None],
                 hand_out: Callable[[int, int, int, int, bool], None], draws: SecretDraws | None) -> None:
        self._begin, self._check, self._hand_out, self._draws = begin, check, hand_out, draws
        self.batches = batches
        workers: dict[str, Any] = {}
        if loader.num_workers > 0:
            workers = {"prefetch_factor": loader.prefetch_factor, "persistent_workers": loader.persistent_workers,
                       "multiprocessing_context": loader.multiprocessing_context}
        super().__init__(loader.dataset, batch_sampler=batches, num_workers=loader.num_workers,
                         collate_fn=loader.collate_fn, pin_memory=loader.pin_memory,
                         timeout=loader.timeout, generator=loader.generator,
                         worker_init_fn=Worker(loader.worker_init_fn) if draws else loader.worker_init_fn,
                         **workers)

    def __iter__(self) -> Any:
        iterator = self._begin()
        inner = super().__iter__()
        # Records are counted when they are drawn, so the loop need not inspect collated batches.
        drawn = self.batches.drawn
        while True:
            self._check(iterator)  # before anything is taken: later iterators share the persistent workers
            if self._draws:
                self._draws.before_batch()
            try:
                batch = next(inner)
            except StopIteration:
                return
            self._hand_out(iterator, *drawn.popleft())
            yield batch


class BatchMemoryManager:
    """Opacus's context: within it, batches come in pieces of at most max_physical_batch_size records, like the argument of
    make_private."""

    def __init__(self, *, data_loader: PrivateLoader, max_physical_batch_size: int, optimizer: object = None) -> None:
        if not isinstance(data_loader, PrivateLoader):
            refuse(f"data_loader is a {type(data_loader).__name__}; pass the loader that make_private returned")
        self.loader, self.most = data_loader, count_of_piece(max_physical_batch_size)

    def __enter__(self) -> PrivateLoader:
        batches = self.loader.batches
        self.before, batches.most = batches.most, self.most
        return self.loader

    def __exit__(self, *_: object) -> None:
        self.loader.batches.most = self.before
