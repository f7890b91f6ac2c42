"""The store on LMDB: one environment, a named database for each table, growth, and a lock against a second process."""

import errno
import fcntl
import logging
import os
import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, TypeVar, cast

import lmdb

from .engine import KEY_BYTES_MAX, TABLES, Engine, Snapshot, Transaction
from .errors import Corrupted, DuplicateKey, FormatTooNew, PathInUse, StorageError, StoreFull
from .writer import Budget, Work, Writer, run_one

Result = TypeVar("Result")

FORMAT_VERSION: Final = 2
MAP_BYTES_DEFAULT: Final = 1 << 40
"""Address space, not disk: the file grows with what is written."""
_MAP_BYTES_MIN: Final = 1 << 28
_READERS_MAX: Final = 1024
_FORMAT_KEY: Final = b"format"
_LOCK_NAME: Final = "bucketd.lock"
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_SCARCE_BYTES: Final = 16 << 20

# Without `buffers=True` LMDB hands out copies.
Pairs = Iterator[tuple[bytes, bytes]]
Keys = Iterator[bytes]

logger = logging.getLogger(__name__)


class LmdbSnapshot(Snapshot):
    """A read transaction of LMDB."""

    def __init__(self, transaction: "lmdb.Transaction", tables: dict[str, "lmdb._Database"]) -> None:
        self._transaction = transaction
        self._tables = tables

    def get(self, table: str, key: bytes) -> bytes | None:
        """See `Snapshot.get`."""
        return cast("bytes | None", self._transaction.get(key, db=self._tables[table]))

    def scan(self, table: str, low: bytes, high: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """See `Snapshot.scan`."""
        with self._transaction.cursor(db=self._tables[table]) as cursor:
            if reverse:
                if not _seek_below(cursor, high):
                    return
                for key, value in cast(Pairs, cursor.iterprev(keys=True, values=True)):
                    if key < low:
                        return
                    yield key, value
            elif cursor.set_range(low):
                for key, value in cast(Pairs, cursor.iternext(keys=True, values=True)):
                    if key >= high:
                        return
                    yield key, value

    def keys(self, table: str, low: bytes, high: bytes, *, reverse: bool = False) -> Iterator[bytes]:
        """See `Snapshot.keys`."""
        with self._transaction.cursor(db=self._tables[table]) as cursor:
            if reverse:
                if not _seek_below(cursor, high):
                    return
                for key in cast(Keys, cursor.iterprev(keys=True, values=False)):
                    if key < low:
                        return
                    yield key
            elif cursor.set_range(low):
                for key in cast(Keys, cursor.iternext(keys=True, values=False)):
                    if key >= high:
                        return
                    yield key


def _seek_below(cursor: "lmdb.Cursor", high: bytes) -> bool:
    """Stand on the last key below `high`; False where there is none."""
    return bool(cursor.prev() if cursor.set_range(high) else cursor.last())


class LmdbTransaction(LmdbSnapshot, Transaction):
    """A write transaction of LMDB, nested or not."""

    def put(self, table: str, key: bytes, value: bytes) -> None:
        """See `Transaction.put`."""
        assert 0 < len(key) <= KEY_BYTES_MAX, len(key)
        self._transaction.put(key, value, db=self._tables[table])

    def put_many(self, table: str, pairs: list[tuple[bytes, bytes]]) -> None:
        """See `Transaction.put_many`."""
        with self._transaction.cursor(db=self._tables[table]) as cursor:
            cursor.putmulti(pairs)

    def insert(self, table: str, key: bytes, value: bytes) -> None:
        """See `Transaction.insert`."""
        assert 0 < len(key) <= KEY_BYTES_MAX, len(key)
        if not self._transaction.put(key, value, db=self._tables[table], overwrite=False):
            raise DuplicateKey(f"{table}: {key.hex()}")

    def delete(self, table: str, key: bytes) -> bool:
        """See `Transaction.delete`."""
        return bool(self._transaction.delete(key, db=self._tables[table]))

    def delete_range(self, table: str, low: bytes, high: bytes, limit: int) -> int:
        """See `Transaction.delete_range`."""
        removed = 0
        with self._transaction.cursor(db=self._tables[table]) as cursor:
            found = cursor.set_range(low)
            while found and removed < limit and bytes(cursor.key()) < high:
                # Deleting moves the cursor to the next key, and says whether there is one.
                cursor.delete()
                removed += 1
                found = bool(cursor.key())
        return removed


class LmdbEngine(Engine):
    """See `Engine`."""

    def __init__(self, path: Path, *, map_bytes: int = MAP_BYTES_DEFAULT, sync: bool = True) -> None:
        """Open the store in the folder `path`, made where it is missing.

        Args:
            path: the folder.
            map_bytes: address space to begin with; grown when it is full, halved where the machine has less.
            sync: fsync each commit; False only for data that nobody will miss.

        Raises:
            PathInUse: another process has the folder open.
            FormatTooNew: a newer version wrote it.
            StorageError: it cannot be opened.
        """
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = _lock_folder(path)
        except OSError as error:
            raise StorageError(f"cannot use the folder {path}: {error}") from error
        self._path = path
        self._environment = _open_environment(path, map_bytes, sync)
        self._tables: dict[str, lmdb._Database] = {}
        self._snapshots = 0
        self._gate = threading.Condition()
        self._growing = False
        try:
            self._check_format()
        except BaseException:
            self._environment.close()
            self._lock.close()
            raise
        self.writer = Writer(self)

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """See `Engine.snapshot`."""
        with self._gate:
            while self._growing:
                self._gate.wait()
            self._snapshots += 1
        try:
            with self._environment.begin(write=False) as transaction:
                yield LmdbSnapshot(transaction, self._tables)
        finally:
            with self._gate:
                self._snapshots -= 1
                if self._growing:
                    self._gate.notify_all()

    async def write(self, work: Callable[[Transaction], Result]) -> Result:
        """See `Engine.write`."""
        return cast(Result, await self.writer.write(work))

    async def write_beside(self, work: Callable[[Transaction], Result]) -> Result:
        """See `Engine.write_beside`."""
        return cast(Result, await self.writer.write_beside(work))

    def quiet(self) -> bool:
        """See `Engine.quiet`."""
        return self.writer.quiet()

    def write_blocking(self, work: Callable[[Transaction], Result]) -> Result:
        """The same for a thread without an event loop (start-up, offline tools)."""
        return cast(Result, self.writer.write_blocking(work))

    def size_bytes(self) -> int:
        """See `Engine.size_bytes`."""
        return int(self._environment.info()["last_pgno"] + 1) * int(self._environment.stat()["psize"])

    def close(self) -> None:
        """See `Engine.close`."""
        self.writer.close()
        with self._gate:
            while self._snapshots:
                self._gate.wait()
        self._environment.close()
        self._lock.close()

    def commit_group(self, works: list[Work]) -> None:
        """See `Store.commit_group`: on the writer's thread."""
        rest = works
        while rest:
            rest = self._commit_some(rest)

    def _commit_some(self, works: list[Work]) -> list[Work]:
        """Commit the works, or as many as fit into the time of a group; returns those left over."""
        try:
            with self._environment.begin(write=True) as transaction:
                if len(works) == 1:
                    if not run_one(works[0], LmdbTransaction(transaction, self._tables)):
                        transaction.abort()
                    done = 1
                else:
                    done = self._run_nested(works, transaction)
                _raise_if_map_full(works[:done])
        except lmdb.MapFullError:
            return self._after_map_full(works)
        except lmdb.Error as error:
            failure = _in_our_terms(error, self._path)
            for work in works:
                work.error = failure
            logger.error("a commit failed: %s", error)
            return []
        for work in works[:done]:
            if isinstance(work.error, lmdb.Error):
                work.error = _in_our_terms(work.error, self._path)
        return works[done:]

    def _run_nested(self, works: list[Work], parent: "lmdb.Transaction") -> int:
        """Run works in transactions of their own until the time of a group is over; returns how many ran."""
        budget = Budget()
        for position, work in enumerate(works):
            child = self._environment.begin(write=True, parent=parent)
            if run_one(work, LmdbTransaction(child, self._tables)):
                child.commit()
            else:
                child.abort()
            if isinstance(work.error, lmdb.MapFullError) or budget.spent():
                return position + 1
        return len(works)

    def _after_map_full(self, works: list[Work]) -> list[Work]:
        """Double the map and have everything run again; where that cannot be, everybody is told."""
        size = int(self._environment.info()["map_size"]) * 2
        with self._gate:
            self._growing = True
            while self._snapshots:
                self._gate.wait()
        try:
            self._environment.set_mapsize(size)
        except (lmdb.Error, MemoryError, OverflowError) as error:
            failure = StoreFull(f"the map of the store is full and cannot grow: {error}")
            for work in works:
                work.error = failure
            return []
        finally:
            with self._gate:
                self._growing = False
                self._gate.notify_all()
        logger.info("the map of the store has grown to %d bytes", size)
        return works

    def _check_format(self) -> None:
        for table in TABLES:
            self._tables[table] = self._environment.open_db(table.encode())
        with self._environment.begin(write=True) as transaction:
            stored = transaction.get(_FORMAT_KEY, db=self._tables["meta"])
            if stored is None:
                transaction.put(_FORMAT_KEY, str(FORMAT_VERSION).encode(), db=self._tables["meta"])
            elif not stored.isdigit():
                raise Corrupted(f"{self._path}: the format record is damaged")
            elif int(stored) > FORMAT_VERSION:
                raise FormatTooNew(f"{self._path} has format {int(stored)}; this version reads up to {FORMAT_VERSION}")
            elif int(stored) < FORMAT_VERSION:
                # What older versions wrote is read as it is, but they could not read what is written from now on.
                transaction.put(_FORMAT_KEY, str(FORMAT_VERSION).encode(), db=self._tables["meta"])


def _lock_folder(path: Path) -> IO[str]:
    """Hold the folder's lock file as long as the returned file is open."""
    lock = open(path / _LOCK_NAME, "a+")  # noqa: SIM115 - held until the engine is closed
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


def _open_environment(path: Path, map_bytes: int, sync: bool) -> "lmdb.Environment":
    """Open LMDB with as much address space as asked for, or as the machine gives."""
    while True:
        try:
            return lmdb.open(
                str(path),
                map_size=map_bytes,
                max_dbs=len(TABLES),
                max_readers=_READERS_MAX,
                sync=sync,
                metasync=sync,
                readahead=False,
                meminit=False,
                max_spare_txns=8,
            )
        except (lmdb.Error, MemoryError) as error:
            scarce = isinstance(error, MemoryError) or "annot allocate memory" in str(error)
            if not scarce or map_bytes // 2 < _MAP_BYTES_MIN:
                raise StorageError(f"cannot open {path}: {error}") from error
            map_bytes //= 2


def _raise_if_map_full(works: list[Work]) -> None:
    for work in works:
        if isinstance(work.error, lmdb.MapFullError):
            raise work.error


def _in_our_terms(error: "lmdb.Error", path: Path) -> StorageError:
    """LMDB's failure as one of this folder's."""
    text = str(error)
    if isinstance(error, lmdb.MapFullError) or any(os.strerror(number) in text for number in _NO_ROOM):
        return StoreFull(f"no room left: {text}")
    if os.strerror(errno.EIO) in text and _disk_is_full(path):
        return StoreFull(f"no room left: {text}")
    if isinstance(error, lmdb.CorruptedError | lmdb.PageNotFoundError | lmdb.InvalidError | lmdb.PanicError):
        return Corrupted(text)
    return StorageError(text)


def _disk_is_full(path: Path) -> bool:
    """Whether a write may have ended early for want of room: LMDB tells a short write as an input/output error."""
    disk = os.statvfs(path)
    if disk.f_bavail * disk.f_frsize < _SCARCE_BYTES:
        return True
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    return limit != resource.RLIM_INFINITY and (path / "data.mdb").stat().st_size > limit - _SCARCE_BYTES
