"""The batch of the next step: the records that the loader handed out, and those that entered a backward pass."""

from __future__ import annotations


class Batch:
    """Counts the records of one step, piece by piece.

    A record that stands in for an empty piece counts like any other, so that the loop cannot distinguish the two.
    """

    def __init__(self) -> None:
        self.open = False  # a piece was handed out, and the step is not finished
        self.final = True  # the last piece was handed out
        self.handed = 0  # records of all pieces so far
        self.seen = 0  # records that entered backward passes
        self.piece = 0  # records of the current piece
        self.left = 0  # of these, records that entered no backward pass
        self.next_piece = 0  # number of the next piece

    def hand_out(self, records: int, final: bool) -> None:
        """The loader handed out the next piece, with this many records."""
        self.piece = self.left = records
        self.handed += records
        self.next_piece += 1
        self.open, self.final = True, final

    def take(self, records: int) -> None:
        """This many records of the current piece entered a backward pass."""
        self.seen += records
        self.left -= records

    def forget(self) -> None:
        """Resets the count: no record has entered a backward pass."""
        self.seen, self.left = 0, self.piece

    @property
    def awaits_pieces(self) -> bool:
        return self.open and not self.final

    @property
    def is_started(self) -> bool:
        """The sums contain records without noise."""
        return self.open and self.seen > 0

    @property
    def is_whole(self) -> bool:
        """Every record of every piece entered a backward pass."""
        return self.is_started and self.final and self.seen == self.handed
