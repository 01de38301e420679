"""Private training you can prove."""

from discreet._core import version as _version
from discreet.accounting import (
    Account,
    Accountant,
    Calibration,
    Interval,
    PldAccountant,
    account,
    calibrate,
)
from discreet.errors import Error
from discreet.events import Event
from discreet.mechanism import clip

__version__: str = _version()

__all__ = [
    "Account",
    "Accountant",
    "Calibration",
    "Error",
    "Event",
    "Interval",
    "PldAccountant",
    "__version__",
    "account",
    "calibrate",
    "clip",
]
