"""Private training you can prove."""

from discreet._core import __version__

__all__ = ["__version__"]
