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
from discreet.mechanism import Mechanism, clip, load_config
from discreet.training import Run, open_run, train

__version__: str = _version()

__all__ = [
    "Account",
    "Accountant",
    "Calibration",
    "Error",
    "Event",
    "Interval",
    "Mechanism",
    "PldAccountant",
    "Run",
    "__version__",
    "account",
    "calibrate",
    "clip",
    "load_config",
    "open_run",
    "train",
]
