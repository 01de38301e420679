"""Batches drawn by the core's sampler, by the law that its accountant knows."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Iterator

from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler

from discreet.torch.errors import refuse


def count_of(name: str, value, why: str) -> int:
    """A whole number of at least 1, also if it is written as 1e3."""
    try:
        number = int(value) if isinstance(value, float) and value.is_integer() else operator.index(value)
    except TypeError:
        number = 0
    if number < 1:
        refuse(f"{name} is {value!r}; give a whole number of at least 1, {why}")
    return number


def count_of_piece(value) -> int | None:
    return None if value is None else count_of("max_physical_batch_size", value, "or None for batches in one piece")


def check_loader(loader: DataLoader) -> None:
    """Refuses a loader whose batches could not be accounted for."""
    if not isinstance(loader, DataLoader):
        refuse(f"data_loader is a {type(loader).__name__}; give a torch.utils.data.DataLoader")
    if isinstance(loader.dataset, IterableDataset):
        refuse("the data set is iterable: its records cannot be drawn at random; give one with __getitem__ and __len__")
    if loader.batch_size is None:
        refuse("the loader has its own batch sampler, or none: how often a record is drawn is not known; give "
               "DataLoader(dataset, batch_size=..., shuffle=True), from which batches are drawn anew")
    sampler = loader.sampler
    if isinstance(sampler, SequentialSampler):
        refuse("the loader keeps the order of the records; batches must be drawn at random to be accounted for: give "
               "shuffle=True (they are then drawn by discreet, not shuffled)")
    if type(sampler) is not RandomSampler:
        refuse(f"the loader draws by a {type(sampler).__name__}, whose rates the accountant does not know; give "
               "shuffle=True, and put a selection of records into torch.utils.data.Subset")
    if sampler.replacement or sampler._num_samples is not None:
        refuse("the loader's RandomSampler draws with replacement or a number of its own; give shuffle=True")


class Batches:
    """One epoch of batches, each in pieces of at most `most` records and at least `pieces` of them.

    A piece without records is handed out with one record of the data set, which the engine counts as absent: it enters no
    sum. So the loop meets at least one record, and nothing in it depends on whether there was any."""

    def __init__(self, sampler: Callable[[], object], step: Callable[[], int], epoch: int, *, pieces: int = 1,
                 most: int | None = None) -> None:
        self.sampler, self.step, self.epoch, self.pieces, self.most = sampler, step, epoch, pieces, most

    def cut(self, batch: list[int]) -> list[list[int]]:
        count = self.pieces
        if self.most is not None:
            count = max(count, -(-len(batch) // self.most))
        return [batch[len(batch) * i // count:len(batch) * (i + 1) // count] for i in range(count)]

    def __iter__(self) -> Iterator[list[int]]:
        # Of each piece: its step, its place in the batch, the records that were drawn, and whether it is the last.
        self.drawn: deque[tuple[int, int, int, bool]] = deque()
        return self._pieces(self.drawn)

    def _pieces(self, drawn) -> Iterator[list[int]]:
        sampler, first = self.sampler(), self.step()
        # A loader that is begun inside an epoch goes on with what is left of it.
        for t in range(first, first - first % self.epoch + self.epoch):
            pieces = self.cut(sampler.batch(t).tolist())
            drawn.extend((t, i, len(piece), i == len(pieces) - 1) for i, piece in enumerate(pieces))
            yield from (piece or [0] for piece in pieces)

    def __len__(self) -> int:
        return self.epoch * self.pieces


class PrivateLoader(DataLoader):
    """Iterates over batches of the engine's sampler, one epoch at a time; the engine learns of each that is handed out."""

    def __init__(self, loader: DataLoader, batches: Batches, begin: Callable[[], int], check: Callable[[int], None],
                 hand_out: Callable[[int, int, int, int, bool], None]) -> None:
        self._begin, self._check, self._hand_out = begin, check, hand_out
        workers = {}
        if loader.num_workers > 0:
            workers = {"prefetch_factor": loader.prefetch_factor, "persistent_workers": loader.persistent_workers,
                       "multiprocessing_context": loader.multiprocessing_context}
        super().__init__(loader.dataset, batch_sampler=batches, num_workers=loader.num_workers,
                         collate_fn=loader.collate_fn, pin_memory=loader.pin_memory,
                         timeout=loader.timeout, worker_init_fn=loader.worker_init_fn, generator=loader.generator,
                         **workers)

    def __iter__(self):
        iterator = self._begin()
        inner = super().__iter__()
        # Records are counted where they are drawn: the loop need not look into what was collated.
        drawn = self.batch_sampler.drawn
        while True:
            self._check(iterator)  # before anything is taken: persistent workers are shared with the iterators that follow
            try:
                batch = next(inner)
            except StopIteration:
                return
            self._hand_out(iterator, *drawn.popleft())
            yield batch


class BatchMemoryManager:
    """Opacus' context: within, batches come in pieces of at most max_physical_batch_size records. As the argument of
    make_private."""

    def __init__(self, *, data_loader: PrivateLoader, max_physical_batch_size: int, optimizer=None) -> None:
        if not isinstance(data_loader, PrivateLoader):
            refuse("BatchMemoryManager takes the loader that make_private returned")
        self.loader, self.most = data_loader, count_of_piece(max_physical_batch_size)

    def __enter__(self) -> PrivateLoader:
        batches = self.loader.batch_sampler
        self.before, batches.most = batches.most, self.most
        return self.loader

    def __exit__(self, *_) -> None:
        self.loader.batch_sampler.most = self.before
