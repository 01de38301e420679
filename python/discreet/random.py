"""Random numbers that depend on (key, stream, step, tensor, coordinate) and on nothing else."""

from discreet._core import Generator

__all__ = ["Generator"]
