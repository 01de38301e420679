"""Private training you can prove."""

from discreet._core import version as _version

__version__: str = _version()

__all__ = ["__version__"]
