"""What a store may raise: these and nothing else leave this folder."""


class StorageError(Exception):
    """The store could not do what it was asked."""


class DuplicateKey(StorageError):
    """A key that must be new exists."""


class StoreFull(StorageError):
    """The disk, or the map of the store, has no room left; nothing of the transaction was kept."""


class DiskFailed(StorageError):
    """The disk did not read or write as it was told; of a transaction nobody knows whether it was kept."""


class Corrupted(StorageError):
    """What was read is not what was written."""


class PathInUse(StorageError):
    """Another process holds the same folder."""


class FormatTooNew(StorageError):
    """The folder was written by a newer version with another format."""


class FormatTooOld(StorageError):
    """The folder was written by an older version, with a format that this one cannot read."""
