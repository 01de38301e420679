"""Private training you can prove."""

from discreet._core import version as _version
from discreet.errors import Error

__version__: str = _version()

__all__ = ["Error", "__version__"]
