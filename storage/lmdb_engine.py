"""The store on LMDB: one environment, a named database for each table, growth, and what becomes of a disk that fails."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar, cast

import lmdb

from . import format
from .engine import TABLES, Engine, Failure, Snapshot, Transaction
from .environment import in_our_terms, lock_folder, open_environment
from .errors import DiskFailed, StorageError, StoreFull
from .lmdb_transactions import LmdbSnapshot, LmdbTransaction
from .writer import Budget, Work, Writer, run_one

Result = TypeVar("Result")

MAP_BYTES_DEFAULT: Final = 1 << 40
"""Address space, not disk: the file grows with what is written."""
MAP_BYTES_MAX: Final = 1 << 46
"""More address space than this a process has not."""

logger = logging.getLogger(__name__)


class LmdbEngine(Engine):
    """See `Engine`."""

    def __init__(
        self,
        path: Path,
        *,
        map_bytes: int = MAP_BYTES_DEFAULT,
        map_bytes_max: int = MAP_BYTES_MAX,
        sync: bool = True,
    ) -> None:
        """Open the store in the folder `path`, made where it is missing, upgraded where an older version made it.

        Args:
            path: the folder.
            map_bytes: address space to begin with; grown when it is full, halved where the machine has less.
            map_bytes_max: where growth ends.
            sync: fsync each commit; False only for data that nobody will miss.

        Raises:
            PathInUse: another process has the folder open.
            FormatTooNew, FormatTooOld: another version wrote it, with a format that this one does not read.
            Corrupted: it is damaged, or no store.
            StorageError: it cannot be opened.
        """
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = lock_folder(path)
        except OSError as error:
            raise StorageError(f"cannot use the folder {path}: {error}") from error
        self._path = path
        self._sync = sync
        self._map_bytes_max = map_bytes_max
        self._tables: dict[str, lmdb._Database] = {}
        self._snapshots = 0
        self._gate = threading.Condition()
        self._stopped = False
        self._failure: StorageError | None = None
        """Why the environment is closed, where it could not be opened again."""
        try:
            self._environment = open_environment(path, map_bytes, sync=sync)
            try:
                self._open_tables()
                with self._environment.begin(write=True) as transaction:
                    had = format.prepare(LmdbTransaction(transaction, self._tables), str(path))
            except lmdb.Error as error:
                self._environment.close()
                raise in_our_terms(error, path, f"cannot open {path}: ") from error
            except BaseException:
                self._environment.close()
                raise
        except BaseException:
            self._lock.close()
            raise
        if had is not None and had != format.FORMAT_VERSION:
            logger.info("the store was upgraded from format %d to %d", had, format.FORMAT_VERSION)
        self.writer = Writer(self)

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """See `Engine.snapshot`."""
        with self._gate:
            while self._stopped:
                self._gate.wait()
            if self._failure is not None:
                raise self._failure
            self._snapshots += 1
        try:
            with self._environment.begin(write=False) as transaction:
                yield LmdbSnapshot(transaction, self._tables)
        except lmdb.Error as error:
            raise in_our_terms(error, self._path) from error
        finally:
            with self._gate:
                self._snapshots -= 1
                if not self._snapshots:
                    self._gate.notify_all()

    async def write(self, work: Callable[[Transaction], Result]) -> Result:
        """See `Engine.write`."""
        return cast(Result, await self.writer.write(work))

    def write_then(
        self, work: Callable[[Transaction], Result], then: Callable[[Result | None, Failure], object]
    ) -> None:
        """See `Engine.write_then`."""
        self.writer.write_then(work, then)

    async def write_beside(self, work: Callable[[Transaction], Result]) -> Result:
        """See `Engine.write_beside`."""
        return cast(Result, await self.writer.write_beside(work))

    def quiet(self) -> bool:
        """See `Engine.quiet`."""
        return self.writer.quiet()

    def write_blocking(self, work: Callable[[Transaction], Result]) -> Result:
        """The same for a thread without an event loop (start-up, offline tools)."""
        return cast(Result, self.writer.write_blocking(work))

    async def hold(self) -> Callable[[], None]:
        """See `Engine.hold`."""
        return await self.writer.hold()

    def size_bytes(self) -> int:
        """See `Engine.size_bytes`."""
        return int(self._environment.info()["last_pgno"] + 1) * int(self._environment.stat()["psize"])

    def finish_writes(self) -> None:
        """See `Engine.finish_writes`."""
        self.writer.close()

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
        if self._failure is not None:
            self._reopen()
        rest = works
        while rest:
            if self._failure is not None:
                _fail(rest, self._failure)
                return
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
            failure = in_our_terms(error, self._path)
            logger.error("a commit failed: %s", error)
            _fail(works, failure)
            if isinstance(failure, DiskFailed):
                # LMDB goes no further once it could not write its root; what is on disk is whole, and is opened anew.
                self._reopen()
            return []
        for work in works[:done]:
            if isinstance(work.error, lmdb.Error):
                work.error = in_our_terms(work.error, self._path)
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
        now = int(self._environment.info()["map_size"])
        size = min(now * 2, self._map_bytes_max)
        if size <= now:
            return self._without_room(works, f"the map of the store is full, with the {now} bytes that it may have")
        with self._nobody_reading():
            try:
                self._environment.set_mapsize(size)
            except (lmdb.Error, MemoryError, OverflowError) as error:
                return self._without_room(works, f"the map of the store is full and cannot grow: {error}")
        logger.info("the map of the store has grown to %d bytes", size)
        return works

    def _without_room(self, works: list[Work], why: str) -> list[Work]:
        """Nothing of the group was kept: run each by itself once, since a small one may fit where all did not."""
        if len(works) == 1:
            _fail(works, StoreFull(why))
            return []
        for work in works:
            self._commit_alone(work, why)
        return []

    def _commit_alone(self, work: Work, why: str) -> None:
        try:
            with self._environment.begin(write=True) as transaction:
                if not run_one(work, LmdbTransaction(transaction, self._tables)):
                    transaction.abort()
                _raise_if_map_full([work])
        except lmdb.MapFullError:
            _fail([work], StoreFull(why))
        except lmdb.Error as error:
            _fail([work], in_our_terms(error, self._path))
        else:
            if isinstance(work.error, lmdb.Error):
                work.error = in_our_terms(work.error, self._path)

    @contextmanager
    def _nobody_reading(self) -> Iterator[None]:
        """Within the block there is no snapshot; whoever wants one waits."""
        with self._gate:
            self._stopped = True
            while self._snapshots:
                self._gate.wait()
        try:
            yield
        finally:
            with self._gate:
                self._stopped = False
                self._gate.notify_all()

    def _reopen(self) -> None:
        """Close the environment and open it again; where that fails, reads and writes are told why until it succeeds."""
        with self._nobody_reading():
            if self._failure is None:
                self._map_bytes = int(self._environment.info()["map_size"])
                self._environment.close()
            try:
                self._environment = open_environment(self._path, self._map_bytes, sync=self._sync)
                self._open_tables()
            except lmdb.Error as error:
                self._environment.close()
                self._failure = in_our_terms(error, self._path)
            except StorageError as error:
                self._failure = error
            else:
                self._failure = None
                logger.warning("the store was opened again after its disk had failed")
                return
            logger.error("the store cannot be opened again: %s", self._failure)

    def _open_tables(self) -> None:
        for table in TABLES:
            self._tables[table] = self._environment.open_db(table.encode())


def _fail(works: list[Work], failure: StorageError) -> None:
    for work in works:
        work.result, work.error = None, failure


def _raise_if_map_full(works: list[Work]) -> None:
    for work in works:
        if isinstance(work.error, lmdb.MapFullError):
            raise work.error
