"""An environment of LMDB: its folder and lock, opening it, a look at a file that may be damaged, errors in our terms."""

import errno
import fcntl
import os
import resource
from pathlib import Path
from typing import IO, Final

import lmdb

from .engine import TABLES
from .errors import Corrupted, DiskFailed, PathInUse, StorageError, StoreFull
from .lmdb_pages import PageFile

DATA_NAME: Final = "data.mdb"
LOCK_NAME: Final = "bucketd.lock"
_MAP_BYTES_MIN: Final = 1 << 28
_READERS_MAX: Final = 1024
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_SCARCE_BYTES: Final = 16 << 20


def lock_folder(path: Path) -> IO[str]:
    """Hold the folder's lock file as long as the returned file is open.

    Raises:
        PathInUse: another process holds it.
        OSError: the folder cannot be written to.
    """
    lock = open(path / LOCK_NAME, "a+")  # noqa: SIM115 - held until the engine is closed
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.seek(0)
        holder = lock.read().strip()
        lock.close()
        raise PathInUse(f"{path} is in use by another process (pid {holder or 'unknown'})") from error
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    return lock


def open_environment(path: Path, map_bytes: int, *, sync: bool = True, read_only: bool = False) -> "lmdb.Environment":
    """Open LMDB with as much address space as asked for, or as the machine gives.

    Raises:
        Corrupted: the file is no store, or was cut off.
        DiskFailed, StoreFull, StorageError: it cannot be opened.
    """
    is_new = not (path / DATA_NAME).exists()
    if not is_new:
        _refuse_torn(path / DATA_NAME)
    while True:
        try:
            environment = lmdb.open(
                str(path),
                map_size=map_bytes,
                max_dbs=len(TABLES),
                max_readers=_READERS_MAX,
                sync=sync,
                metasync=sync,
                readonly=read_only,
                create=not read_only,
                readahead=False,
                meminit=False,
                max_spare_txns=8,
            )
            break
        except (lmdb.Error, MemoryError) as error:
            scarce = isinstance(error, MemoryError) or "annot allocate memory" in str(error)
            if not scarce or map_bytes // 2 < _MAP_BYTES_MIN:
                if isinstance(error, lmdb.Error):
                    raise in_our_terms(error, path, f"cannot open {path}: ") from error
                raise StorageError(f"cannot open {path}: {error}") from error
            map_bytes //= 2
    if is_new and sync:
        _sync_folder(path)
    return environment


def _refuse_torn(data: Path) -> None:
    """See that every page that the store refers to is in its file: a map behind its end is the death of the process.

    Raises:
        Corrupted
    """
    try:
        if data.stat().st_size == 0:
            # A start that was cut short left it; LMDB makes the store anew.
            return
        pages = PageFile(data)
    except OSError as error:
        raise DiskFailed(f"cannot read {data}: {error}") from error
    try:
        if pages.size >= pages.bytes_wanted:
            return
        # Pages that were set aside and never written may be missing at the end; any other may not.
        report = pages.check()
    finally:
        pages.close()
    if report.errors:
        raise Corrupted(
            f"{data} was cut off: it has {pages.size} of {pages.bytes_wanted} bytes ({report.errors[0]}); "
            "restore a backup, or look at it with 'bucketd check'"
        )


def _sync_folder(path: Path) -> None:
    """Make the names of new files survive a power cut: syncing the files does not."""
    for folder in (path, path.parent):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise DiskFailed(f"cannot sync {folder}: {error}") from error
        finally:
            os.close(descriptor)


def in_our_terms(error: "lmdb.Error", path: Path, context: str = "") -> StorageError:
    """LMDB's failure as one of this folder's."""
    text = context + str(error)
    if isinstance(error, lmdb.MapFullError) or any(os.strerror(number) in text for number in _NO_ROOM):
        return StoreFull(f"no room left: {text}")
    if os.strerror(errno.EIO) in text:
        # A write that ended early is told as an input/output error too, and there it is for want of room.
        return StoreFull(f"no room left: {text}") if _disk_is_full(path) else DiskFailed(text)
    if isinstance(error, lmdb.PanicError):
        return DiskFailed(text)
    if isinstance(error, lmdb.CorruptedError | lmdb.PageNotFoundError | lmdb.InvalidError | lmdb.VersionMismatchError):
        return Corrupted(text)
    return StorageError(text)


def _disk_is_full(path: Path) -> bool:
    """Whether a write may have ended early for want of room."""
    disk = os.statvfs(path)
    if disk.f_bavail * disk.f_frsize < _SCARCE_BYTES:
        return True
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    return limit != resource.RLIM_INFINITY and (path / DATA_NAME).stat().st_size > limit - _SCARCE_BYTES
