"""The native module: what each function takes, gives and refuses. Imported only by `kernels/__init__.py`."""

from collections.abc import Callable, Sequence
from typing import Final, final

LONG_KEY_PREFIX: Final[int]
"""Bytes of a long key that an index keeps as they are."""
LONG_KEY_BYTES: Final[int]
"""Length that every long key is cut to; a key of fewer bytes is whole."""

class ParallelArrays(ValueError):
    """Two paths of an index lead to different arrays of one document; the message is MongoDB's."""

class AmbiguousPath(ValueError):
    """A number in an index path is both a position in an array and a field of the array's objects."""

def crc32c(bytes: bytes) -> int:
    """CRC-32C (Castagnoli) of the bytes."""

def document_shape(document: bytes, depth_max: int) -> tuple[int, int]:
    """Number of top-level fields (doubles counted twice), and levels of nesting, of a raw document.

    A document without documents or arrays in it has one level; levels are counted up to `depth_max + 1`.

    Raises:
        ValueError: the bytes are no BSON. Values other than documents and arrays are not looked into.
    """

def key_string(
    values: bytes, descending: Sequence[bool] = (), collate: Callable[[str], bytes] | None = None
) -> bytes:
    """Bytes that compare, unsigned, as the values of a document do in the order of BSON.

    Args:
        values: raw BSON document; its names do not count.
        descending: which of the values, in order, are to be compared the other way; those without a word ascend.
        collate: gives the bytes that a string sorts by; without it strings compare byte by byte.

    Returns:
        The keys of the values, one after the other, at full length. No value's key begins another value's key, and none
        begins with 00 or FF: keys that begin with the values `v` are those in `key_string(v) <= key < key_string(v) + FF`.

    Raises:
        ValueError: the bytes are no BSON.
    """

def cap_key(key: bytes) -> bytes:
    """The key as indexes keep it: unchanged up to `LONG_KEY_BYTES - 1` bytes, else a prefix and a hash of the whole.

    Different keys stay different. Cut keys that share a prefix are in no order among themselves, so a bound must be cut
    to `LONG_KEY_PREFIX` bytes, and documents found by one that was cut must be compared again.
    """

def key_of_id(document: bytes, collate: Callable[[str], bytes] | None = None) -> bytes:
    """The (capped) key of a raw document's `_id`.

    Raises:
        ValueError: the bytes are no BSON, or there is no `_id`.
    """

@final
class IndexKeyMaker:
    """Makes the keys of one index from raw documents."""

    def __new__(cls, paths: Sequence[str], descending: Sequence[bool], sparse: bool = False) -> IndexKeyMaker:
        """Prepare an index.

        Args:
            paths: its 1 to 64 dotted paths.
            descending: a direction for each.
            sparse: give no key for a document that has none of the paths.

        Raises:
            ValueError: no path, too many, or another number of directions.
        """

    def keys(
        self, document: bytes, collate: Callable[[str], bytes] | None = None
    ) -> tuple[list[bytes], list[list[int]] | None]:
        """The different keys of a raw document, ascending and capped, and which components of the paths were arrays.

        Returns:
            The keys, and None where no array was met, else for each path the numbers (from 1) of its components that were.

        Raises:
            ValueError: the bytes are no BSON.
            ParallelArrays, AmbiguousPath: no keys can be made.
        """

    def rows(
        self, document: bytes, collate: Callable[[str], bytes] | None = None
    ) -> list[tuple[bytes, bytes]]:
        """For each entry its key at full length (not capped) and its values as raw BSON, named by the paths.

        Equal entries may stand more than once. Raises as `keys`.
        """

def index_keys(
    document: bytes,
    paths: Sequence[str],
    descending: Sequence[bool],
    sparse: bool = False,
    collate: Callable[[str], bytes] | None = None,
) -> tuple[list[bytes], list[list[int]] | None]:
    """`IndexKeyMaker(paths, descending, sparse).keys(document, collate)`, for an index that is used once."""
