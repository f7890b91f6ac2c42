"""The stamp of a store: which format it has, what to do with an older one, and what is no store of ours.

A store is stamped when it is made. From then on the stamp moves only with an upgrade, in the transaction that upgrades.
"""

from collections.abc import Callable, Mapping
from typing import Final

from .engine import TABLES, Snapshot, Transaction
from .errors import Corrupted, FormatTooNew, FormatTooOld

FORMAT_VERSION: Final = 3
"""What this version writes."""

FORMAT_KEY: Final = b"format"


def _as_it_is(transaction: Transaction) -> None:
    """What was written before is read as it is; the stamp keeps out versions that could not read what comes now."""


UPGRADES: Final[Mapping[int, Callable[[Transaction], None]]] = {
    # Entries of indexes may keep the types of their values behind the record key.
    1: _as_it_is,
    # Packs may keep their buckets by columns.
    2: _as_it_is,
}
"""By the version that it begins with: what turns a store of that version into one of the next."""


def stamp_of(snapshot: Snapshot, where: str) -> int | None:
    """The format of a store; None where the store is new.

    Raises:
        Corrupted: something is stored, and no format beside it, or one that is no number.
    """
    stored = snapshot.get("meta", FORMAT_KEY)
    if stored is None:
        if any(next(snapshot.keys(table, b"", b"\xff" * 16), None) is not None for table in TABLES):
            raise Corrupted(f"{where} holds data without a format record; it is damaged, or no store of bucketd's")
        return None
    if not stored.isdigit() or len(stored) > 9:
        raise Corrupted(f"{where}: the format record is damaged")
    return int(stored)


def check_stamp(
    version: int, where: str, *, current: int = FORMAT_VERSION, upgrades: Mapping[int, object] = UPGRADES
) -> list[int]:
    """The versions that a store has to be upgraded from, one after the other; none where it has the current one.

    Raises:
        FormatTooNew: a later version wrote it.
        FormatTooOld: there is no way from it to the current one.
    """
    if version > current:
        raise FormatTooNew(
            f"{where} has format {version}, and this version of bucketd reads up to {current}; "
            "open it with the version that wrote it, or a later one"
        )
    steps = list(range(version, current))
    missing = [step for step in steps if step not in upgrades]
    if missing:
        raise FormatTooOld(
            f"{where} has format {version}, which this version of bucketd (format {current}) can no longer upgrade; "
            "open it with an older version, and move the data with mongodump and mongorestore"
        )
    return steps


def prepare(
    transaction: Transaction,
    where: str,
    *,
    current: int = FORMAT_VERSION,
    upgrades: Mapping[int, Callable[[Transaction], None]] = UPGRADES,
) -> int | None:
    """Stamp a new store, upgrade an old one; returns the format that it had, None where it was new.

    Raises:
        Corrupted, FormatTooNew, FormatTooOld: nothing was changed.
    """
    version = stamp_of(transaction, where)
    steps = [] if version is None else check_stamp(version, where, current=current, upgrades=upgrades)
    for step in steps:
        upgrades[step](transaction)
    if version != current:
        transaction.put("meta", FORMAT_KEY, str(current).encode())
    return version
