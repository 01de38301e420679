"""Random numbers that depend only on (key, stream, step, tensor, coordinate)."""

from discreet._core import Generator

__all__ = ["Generator"]
