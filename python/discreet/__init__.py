"""Private training you can prove."""

from discreet._core import version as _version
from discreet.accounting import Account, Calibration, Interval, PldAccountant, account, calibrate
from discreet.errors import Error

__version__: str = _version()

__all__ = [
    "Account",
    "Calibration",
    "Error",
    "Interval",
    "PldAccountant",
    "__version__",
    "account",
    "calibrate",
]
