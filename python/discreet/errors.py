"""The one exception of the package."""


class Error(Exception):
    """Ends an operation; every object involved is as it was before the call.

    code: the reason in capitals, such as "INVALID_DP_CONFIG"; its spelling never changes.
    op: the operator or function that failed.
    sentence: names the offending value and what to do about it.
    """

    code: str
    op: str
    sentence: str
