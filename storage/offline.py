"""A store without a server: opened for looking, copied while another process serves it, put back where nothing is.

A backup is a folder with the store's one file and `backup.json`, which says what it should be. The copy is one snapshot of
LMDB, compacted: it holds everything that was acknowledged before it began, whoever writes meanwhile.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import lmdb

from . import format
from .engine import TABLES, Snapshot
from .environment import DATA_NAME, LOCK_NAME, in_our_terms, lock_folder, open_environment
from .errors import Corrupted, DiskFailed, StorageError
from .lmdb_pages import PageFile, PageReport
from .lmdb_transactions import LmdbSnapshot

MANIFEST_NAME: Final = "backup.json"
_MANIFEST_VERSION: Final = 1
_BLOCK_BYTES: Final = 1 << 20
_OWN_FILES: Final = frozenset({LOCK_NAME, "lock.mdb"})
"""What a server leaves in a folder that is otherwise empty."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a backup says of itself."""

    version: int
    format: int
    created: str
    """UTC, ISO 8601."""
    bytes: int
    sha256: str
    compacted: bool


def check_pages(path: Path) -> PageReport:
    """Look at the pages of the store in a folder, without LMDB.

    Raises:
        StorageError: there is none, or it cannot be read at all.
    """
    data = _data_of(path)
    try:
        pages = PageFile(data)
    except OSError as error:
        raise DiskFailed(f"cannot read {data}: {error}") from error
    try:
        return pages.check()
    finally:
        pages.close()


@contextmanager
def open_for_looking(path: Path) -> Iterator["OfflineStore"]:
    """The store in a folder that no server has open, which nobody can open meanwhile.

    Raises:
        PathInUse: a server has it open.
        FormatTooNew, FormatTooOld, Corrupted, StorageError: it cannot be read.
    """
    with ExitStack() as stack:
        _data_of(path)
        try:
            stack.enter_context(lock_folder(path))
        except OSError as error:
            raise StorageError(f"cannot use the folder {path}: {error}") from error
        yield stack.enter_context(_opened(path))


class OfflineStore:
    """A store that is only read."""

    def __init__(self, environment: "lmdb.Environment", path: Path) -> None:
        self._environment = environment
        self._path = path
        self._tables: dict[str, lmdb._Database] = {}
        self.version = format.FORMAT_VERSION
        """Its format."""

    def prepare(self) -> None:
        """Find the tables and the stamp.

        Raises:
            FormatTooNew, FormatTooOld, Corrupted
        """
        try:
            for table in TABLES:
                self._tables[table] = self._environment.open_db(table.encode(), create=False)
        except lmdb.NotFoundError as error:
            raise Corrupted(f"{self._path} is no store of bucketd's: a table is missing ({error})") from error
        with self.snapshot() as snapshot:
            version = format.stamp_of(snapshot, str(self._path))
        if version is None:
            raise Corrupted(f"{self._path} has no format record")
        format.check_stamp(version, str(self._path))
        self.version = version

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """The store as of now."""
        try:
            with self._environment.begin() as transaction:
                yield LmdbSnapshot(transaction, self._tables)
        except lmdb.Error as error:
            raise in_our_terms(error, self._path) from error

    def copy_to(self, target: Path) -> bool:
        """Copy it into an empty folder; True where the copy was compacted."""
        try:
            self._environment.copy(str(target), compact=True)
        except lmdb.IncompatibleError:
            # Where pages are lost LMDB does not compact; they are wasted room, and the plain copy is as good.
            (target / DATA_NAME).unlink(missing_ok=True)
            self._environment.copy(str(target), compact=False)
            return False
        return True


def back_up(source: Path, target: Path) -> Manifest:
    """Copy a store, served or not, into a folder that is empty or not there yet; verified before it is called done.

    Raises:
        StorageError: there is no store, the target holds something, or the disk is full; nothing of the copy is left.
    """
    _data_of(source)
    made = _empty_folder(target)
    try:
        with _opened(source) as store:
            try:
                compacted = store.copy_to(target)
            except lmdb.Error as error:
                raise in_our_terms(error, target, f"cannot copy to {target}: ") from error
            version = store.version
        data = target / DATA_NAME
        _sync(data)
        manifest = Manifest(
            version=_MANIFEST_VERSION,
            format=version,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            bytes=data.stat().st_size,
            sha256=_digest(data),
            compacted=compacted,
        )
        _refuse_damage(target)
        # The manifest comes last: a folder without one is no backup.
        (target / MANIFEST_NAME).write_text(json.dumps(asdict(manifest), indent=2) + "\n", encoding="ascii")
        _sync(target / MANIFEST_NAME)
        _sync(target)
    except BaseException as error:
        _clear(target, made)
        if isinstance(error, OSError):
            raise DiskFailed(f"cannot back up {source} to {target}: {error}") from error
        raise
    return manifest


def restore(source: Path, target: Path) -> Manifest:
    """Put a backup into a folder that is empty or not there yet, having verified it before and after.

    Raises:
        StorageError: it is no backup, is damaged, or the target holds something; nothing is left in the target.
    """
    manifest = read_manifest(source)
    data = source / DATA_NAME
    try:
        size, digest = data.stat().st_size, _digest(data)
    except OSError as error:
        raise Corrupted(f"{source}: the backup cannot be read: {error}") from error
    if (size, digest) != (manifest.bytes, manifest.sha256):
        raise Corrupted(f"{data} is not what was backed up: its bytes or their checksum differ from {MANIFEST_NAME}")
    format.check_stamp(manifest.format, str(source))
    made = _empty_folder(target)
    try:
        lock = lock_folder(target)
        try:
            partial = target / (DATA_NAME + ".partial")
            shutil.copyfile(data, partial)
            _sync(partial)
            if _digest(partial) != manifest.sha256:
                raise DiskFailed(f"{target}: what was written is not what is read back")
            # Under its own name only once it is whole: a server takes what it finds there.
            partial.rename(target / DATA_NAME)
            _sync(target)
            _refuse_damage(target)
            with _opened(target):
                pass
        finally:
            lock.close()
    except BaseException as error:
        _clear(target, made)
        if isinstance(error, OSError):
            raise DiskFailed(f"cannot restore to {target}: {error}") from error
        raise
    return manifest


def read_manifest(path: Path) -> Manifest:
    """What the backup in a folder says of itself.

    Raises:
        Corrupted: there is none, or it cannot be read.
    """
    try:
        found: dict[str, Any] = json.loads((path / MANIFEST_NAME).read_text(encoding="ascii"))
        manifest = Manifest(**found)
        if manifest.version != _MANIFEST_VERSION or not isinstance(manifest.format, int):
            raise ValueError(f"version {manifest.version}")
    except FileNotFoundError as error:
        raise Corrupted(f"{path} is no finished backup: it has no {MANIFEST_NAME}") from error
    except (OSError, ValueError, TypeError) as error:
        raise Corrupted(f"{path / MANIFEST_NAME} cannot be read: {error}") from error
    return manifest


@contextmanager
def _opened(path: Path) -> Iterator[OfflineStore]:
    # The map of the file decides, which is never shorter than what this asks for.
    environment = open_environment(path, 1 << 28, read_only=True)
    try:
        store = OfflineStore(environment, path)
        store.prepare()
        yield store
    finally:
        environment.close()


def _refuse_damage(path: Path) -> None:
    report = check_pages(path)
    if report.errors:
        raise Corrupted(f"{path} is damaged: {report.errors[0]}")


def _data_of(path: Path) -> Path:
    data = path / DATA_NAME
    if not data.is_file():
        raise StorageError(f"there is no store in {path}")
    return data


def _empty_folder(path: Path) -> bool:
    """See that a folder is there and empty; True where it was made."""
    try:
        found = {entry.name for entry in path.iterdir()} if path.exists() else None
        if found is None:
            path.mkdir(parents=True)
    except OSError as error:
        raise StorageError(f"cannot use the folder {path}: {error}") from error
    if found and not found <= _OWN_FILES:
        raise StorageError(f"{path} is not empty: it holds {', '.join(sorted(found - _OWN_FILES)[:3])}")
    return found is None


def _clear(path: Path, made: bool) -> None:
    for name in (DATA_NAME, DATA_NAME + ".partial", "lock.mdb", LOCK_NAME, MANIFEST_NAME):
        (path / name).unlink(missing_ok=True)
    if made:
        path.rmdir()


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
