"""The zstd module: of the standard library where it has one, else of its backport. Loaded when it is first needed."""

import sys
from functools import cache
from typing import Any


@cache
def zstd() -> Any:
    """The module."""
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd
