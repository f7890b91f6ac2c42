"""What lies under the numbers of dropped collections and indexes: noted in the change that drops them, removed in slices."""

from collections.abc import Iterator
from typing import Final

from ..storage.engine import Snapshot, Transaction
from ..storage.keys import after, number_key, number_of

_NEXT_ID: Final = b"next_id"
_GARBAGE: Final = b"garbage"
_SWEEP_KEYS: Final = 5000


def next_id(transaction: Transaction) -> int:
    """The next number for a collection or an index; never given twice."""
    stored = transaction.get("meta", _NEXT_ID)
    number = 1 if stored is None else int.from_bytes(stored, "big")
    transaction.put("meta", _NEXT_ID, (number + 1).to_bytes(8, "big"))
    return number


def last_id(snapshot: Snapshot) -> int:
    """The highest number that was given."""
    stored = snapshot.get("meta", _NEXT_ID)
    return 0 if stored is None else int.from_bytes(stored, "big") - 1


def garbage_in(snapshot: Snapshot) -> Iterator[tuple[str, int]]:
    """Tables and numbers of what nobody needs."""
    for key, table in snapshot.scan("meta", _GARBAGE, after(_GARBAGE)):
        yield table.decode("utf-8", "replace"), number_of(key[len(_GARBAGE) :].rjust(8, b"\0"))


def note_garbage(transaction: Transaction, number: int, table: str) -> None:
    """Note that nobody needs what a table holds under a number."""
    transaction.put("meta", _GARBAGE + number_key(number), table.encode())


def sweep_slice(transaction: Transaction) -> bool:
    """Remove one slice of garbage; True while there is more."""
    for key, table in transaction.scan("meta", _GARBAGE, after(_GARBAGE)):
        low = key[len(_GARBAGE) :]
        if transaction.delete_range(table.decode(), low, after(low), _SWEEP_KEYS) < _SWEEP_KEYS:
            transaction.delete("meta", key)
        return True
    return False
