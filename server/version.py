"""What this program is: its own version, beside the one of MongoDB that it answers with."""

from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache
def package_version() -> str:
    """The version of bucketd, as installed; `0+unpacked` where it runs from files that were not."""
    try:
        return version("bucketd")
    except PackageNotFoundError:
        return "0+unpacked"
