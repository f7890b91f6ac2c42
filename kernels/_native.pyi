"""The native module: what each function takes, gives and refuses. Imported only by `kernels/__init__.py`."""

from collections.abc import Callable, Sequence
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

LONG_KEY_PREFIX: Final[int]
"""Bytes of a long key that an index keeps as they are."""
LONG_KEY_BYTES: Final[int]
"""Length that every long key is cut to; a key of fewer bytes is whole."""

class ParallelArrays(ValueError):
    """Two paths of an index lead to different arrays of one document; the message is MongoDB's."""

class AmbiguousPath(ValueError):
    """A number in an index path is both a position in an array and a field of the array's objects."""

class IndexRefused(ValueError):
    """A document that an index cannot hold; `args` are MongoDB's code and the message."""

def crc32c(bytes: bytes) -> int:
    """CRC-32C (Castagnoli) of the bytes."""

@final
class RawFilter:
    """A predicate on raw documents that is judged without decoding them."""

    def __new__(cls, condition: tuple[Any, ...]) -> RawFilter:
        """Prepare a predicate.

        Args:
            condition: `("and", conditions)`, `("or", conditions)`, `("exists", path, wanted)`,
                `("compare", path, relation, constant)` for a relation such as `$gte` that holds between values of one
                class, `("loose", path, relation, constant)` for the order of all types, or `("in", path, constants)`.
                A path is a list of names, a constant a type byte and the bytes of a number other than NaN or Decimal128,
                string, date, ObjectId, truth value or timestamp.

        Raises:
            ValueError: it is none of these.
        """

    def verdicts(self, documents: list[bytes]) -> bytes:
        """A byte for each document: 0 it does not match, 1 it does, 2 it has to be decoded to tell (an array, say)."""

def document_shape(document: bytes, depth_max: int) -> tuple[int, int]:
    """Number of top-level fields (doubles counted twice), and levels of nesting, of a raw document.

    A document without documents or arrays in it has one level; levels are counted up to `depth_max + 1`.

    Raises:
        ValueError: the bytes are no BSON. Values other than documents and arrays are not looked into.
    """

def key_string(values: bytes, descending: Sequence[bool] = (), collate: Callable[[str], bytes] | None = None) -> bytes:
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

def key_hash(key: bytes) -> int:
    """The 64 bits that a hashed index keeps in place of a value, of which this is the key."""

def key_of_id(document: bytes, collate: Callable[[str], bytes] | None = None) -> bytes:
    """The (capped) key of a raw document's `_id`.

    Raises:
        ValueError: the bytes are no BSON, or there is no `_id`.
    """

@final
class IndexKeyMaker:
    """Makes the keys of one index from raw documents."""

    def __new__(
        cls, paths: Sequence[str], descending: Sequence[bool], sparse: bool = False, hashed: int | None = None
    ) -> IndexKeyMaker:
        """Prepare an index.

        Args:
            paths: its 1 to 64 dotted paths.
            descending: a direction for each.
            sparse: give no key for a document that has none of the paths.
            hashed: position of the path of which a hash is kept in place of the value.

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
            IndexRefused: an array under a hashed index.
        """

    def typed_keys(self, document: bytes) -> tuple[list[bytes], list[list[int]] | None, bytes]:
        """The same without a collation, and the types of the key: what `IndexEntryReader` needs beside it.

        The types are empty where the document has several keys or none, or arrays on its paths. Raises as `keys`.
        """

    def rows(self, document: bytes, collate: Callable[[str], bytes] | None = None) -> list[tuple[bytes, bytes]]:
        """For each entry its key at full length (not capped) and its values as raw BSON, named by the paths.

        Equal entries may stand more than once. Raises as `keys`.
        """

@final
class IndexEntryReader:
    """Turns entries of one index without a collation back into documents of some of its paths."""

    def __new__(cls, paths: Sequence[str], descending: Sequence[bool], wanted: Sequence[bool]) -> IndexEntryReader:
        """Prepare an index; `wanted` says which of its paths are told.

        Raises:
            ValueError: not one of each for each path, or a wanted path lies below another.
        """

    def documents(self, entries: Sequence[tuple[bytes, bytes]]) -> list[bytes | None]:
        """Raw documents of entries, each given as its key (more may follow it) and its types.

        None stands for an entry that does not tell its values: they were cut, are of a type that keys do not keep apart,
        a value below a dotted path is missing, or there are no types.
        """

@final
class Collator:
    """The order of strings of a BCP 47 locale with its options. Raises ValueError for what is no locale."""

    def __new__(
        cls,
        locale: str,
        *,
        strength: int,
        case_level: bool,
        case_first: str,
        numeric: bool,
        shifted: bool,
        shifts_punctuation: bool,
    ) -> Collator: ...
    def key(self, string: str) -> bytes:
        """Bytes that sort as the string does."""

class SphereKeyMaker:
    """Makes the keys of one 2dsphere index: the cells of the sphere that hold a geometry."""

    def __new__(cls, fields: Sequence[tuple[str, str | None, bool]], sparse: bool) -> SphereKeyMaker:
        """Prepare an index.

        Args:
            fields: for each its path, `2dsphere` or `2dsphere_bucket` where it holds geometries (the latter in the
                measurements of a bucket), and whether it descends.
            sparse: give no key for a document without any geometry.
        """

    def keys(
        self, document: bytes, collate: Callable[[str], bytes] | None = None
    ) -> tuple[list[bytes], list[list[int]] | None]:
        """As `IndexKeyMaker.keys`.

        Raises:
            ValueError: the bytes are no BSON.
            IndexRefused: 16755, there is something else than a geometry.
        """

@final
class FlatKeyMaker:
    """Makes the keys of one 2d index: the cells of the plane that hold points."""

    def __new__(cls, path: str, fields: int, bits: int, min: float, max: float) -> FlatKeyMaker:
        """Prepare an index of so many fields, the first of them the place; the plane is cut in two `bits` times each way."""

    def keys(
        self, document: bytes, collate: Callable[[str], bytes] | None = None
    ) -> tuple[list[bytes], list[list[int]] | None]:
        """As `IndexKeyMaker.keys`; none for a document without a place.

        Raises:
            ValueError: the bytes are no BSON.
            IndexRefused: 13026, 13067, 13068 and 13654 for what is no point, 13027 for one outside of the plane.
        """

    def covering(self, low: tuple[float, float], high: tuple[float, float], count: int) -> list[tuple[int, int]]:
        """Ranges of cells, about `count` and ascending, that together hold a rectangle."""

@final
class TextKeyMaker:
    """Makes the keys of one text index: the terms of the texts of a document."""

    def __new__(
        cls,
        before: Sequence[tuple[str, bool]],
        behind: Sequence[tuple[str, bool]],
        weights: Sequence[tuple[str, float]],
        others: float | None,
        default_language: str,
        language_field: str,
    ) -> TextKeyMaker:
        """Prepare an index.

        Args:
            before, behind: its ordinary fields, as path and whether it descends, before and behind the texts.
            weights: paths of texts, and how much a term there weighs.
            others: the weight of all other paths; None where only those are taken in.
            default_language: of texts, where nothing else is said.
            language_field: the field of a document or of one within it that names the language of its texts.

        Raises:
            ValueError: the language is unknown.
        """

    def keys(
        self, document: bytes, collate: Callable[[str], bytes] | None = None
    ) -> tuple[list[bytes], list[list[int]] | None]:
        """As `IndexKeyMaker.keys`; where there are several terms, the list of the texts holds a 1.

        Raises:
            ValueError: the bytes are no BSON.
            IndexRefused: 16675 for an array beside the texts, 17261 and 17262 for a language that is no string or unknown.
        """

@final
class TextSearch:
    """A search in one text index."""

    def __new__(
        cls, maker: TextKeyMaker, search: str, language: str, case_sensitive: bool, diacritic_sensitive: bool
    ) -> TextSearch:
        """Parse a search: words, `-word`, and "phrases".

        Raises:
            ValueError: the language is unknown.
        """

    @property
    def terms(self) -> list[str]:
        """The terms to look up, of which a document must have one."""

    @property
    def negated(self) -> list[str]:
        """Terms that a document must not have."""

    @property
    def phrases(self) -> list[str]:
        """Phrases that a document must have, all of them."""

    @property
    def negated_phrases(self) -> list[str]:
        """Phrases that a document must not have."""

    def scores(self, documents: list[bytes]) -> list[float | None]:
        """How well each of some raw documents fits; None for one that does not.

        Raises:
            ValueError: the bytes are no BSON.
        """

@final
class SphereRegion:
    """A region of the sphere that stored geometries are compared with."""

    @staticmethod
    def of_geometry(document: bytes) -> SphereRegion:
        """The geometry that is the first value of a raw document.

        Raises:
            ValueError: it is none.
        """

    @staticmethod
    def of_cap(centre: tuple[float, float, float], radius: float) -> SphereRegion:
        """All points within an angle, in radians, of a point of the unit sphere."""

    def holds(self, document: bytes) -> bool:
        """Whether the first value of a raw document is a geometry all of which lies in the region.

        Raises:
            ValueError: the bytes are no BSON.
        """

    def meets(self, document: bytes) -> bool:
        """Whether the first value of a raw document is a geometry that has a point in common with the region.

        Raises: as `holds`.
        """

def ring_crosses_itself(vertices: Sequence[tuple[float, float, float]]) -> bool:
    """Whether two sides of a closed line on the unit sphere meet that are no neighbours."""

def cover_cap(longitude: float, latitude: float, radius: float, count: int) -> list[tuple[int, int]]:
    """Ranges of the cells that can have a part in a circle of the sphere; degrees, and the radius an angle in radians.

    The circle is held by about `count` cells. Those around them are in the ranges too: what lies in a larger cell may reach
    into a smaller one.
    """

def cover_geometry(document: bytes, count: int) -> list[tuple[int, int]]:
    """The same for the geometry that is the first value of a raw document.

    Raises:
        ValueError: it is none.
    """

@final
class WildcardKeyMaker:
    """Makes the keys of one wildcard index: for every leaf that it takes in, the path and the value."""

    def __new__(
        cls,
        before: Sequence[tuple[str, bool]],
        behind: Sequence[tuple[str, bool]],
        scope: str,
        descending: bool,
        projection: Sequence[tuple[str, bool]],
        others: bool,
    ) -> WildcardKeyMaker:
        """Prepare an index.

        Args:
            before, behind: its ordinary fields, as path and whether it descends, before and behind the wildcard.
            scope: the path below which leaves are taken in; empty for the whole document.
            descending: whether values are kept from the highest.
            projection: paths and whether they are taken in.
            others: whether what the projection does not name is taken in.
        """

    def keys(
        self, document: bytes, collate: Callable[[str], bytes] | None = None
    ) -> tuple[list[bytes], list[list[int]] | None]:
        """As `IndexKeyMaker.keys`; where a leaf stood in an array, the wildcard field's list holds a 1.

        Raises:
            ValueError: the bytes are no BSON.
            IndexRefused: an ordinary field leads to an array.
        """

def index_keys(
    document: bytes,
    paths: Sequence[str],
    descending: Sequence[bool],
    sparse: bool = False,
    collate: Callable[[str], bytes] | None = None,
) -> tuple[list[bytes], list[list[int]] | None]:
    """`IndexKeyMaker(paths, descending, sparse).keys(document, collate)`, for an index that is used once."""

class BucketError(ValueError):
    """A bucket document that cannot be unpacked; `args` are MongoDB's code and the message."""

@final
class Run:
    """Measurements of one series out of a batch, in the order in which they came. Made by `partition`."""

    @property
    def meta(self) -> bytes | None:
        """The normalised meta value: its BSON type byte and the bytes of the value; None where the field is missing."""

    @property
    def first_ms(self) -> int:
        """Time of the first measurement."""

    def __len__(self) -> int: ...
    def time_ms(self, position: int) -> int:
        """Time of the measurement at a position of the run, in milliseconds since 1970."""

    def index(self, position: int) -> int:
        """Where the measurement at a position of the run stood in the batch."""

    def indices(self, start: int = 0, stop: int | None = None) -> list[int]:
        """The same for several positions."""

    def document(self, position: int) -> bytes:
        """The raw measurement, with its `_id`."""

@final
class Partition:
    """A batch taken apart by series."""

    @property
    def runs(self) -> list[Run]:
        """A run for each series, in the order of their first measurements."""

    @property
    def errors(self) -> list[tuple[int, int, str]]:
        """What is refused: position in the batch, MongoDB's code, and the message."""

    @property
    def count(self) -> int:
        """How many documents the batch held."""

    @property
    def first_ms(self) -> int:
        """The earliest time with which a run begins; 0 where there is none."""

    @property
    def measurements(self) -> int:
        """How many of them are in the runs."""

    @property
    def extended(self) -> bool:
        """Whether a time lies outside of 1970 to 2038, where the `_id` of a bucket cannot tell it."""

def partition(
    documents: bytes | list[bytes],
    time_field: str,
    meta_field: str | None,
    *,
    bytes_max: int = ...,
    stop: int = ...,
    start: int = ...,
) -> Partition:
    """Take a batch of measurements apart by series, without making a Python object of a document.

    Args:
        documents: raw documents back to back in one buffer, or one by one.
        time_field: the field that must hold a date; the first of that name counts.
        meta_field: the field that names the series; None where all measurements are one series.
        bytes_max: a longer document is refused, with code 10334.
        stop: documents from this position on are left alone.
        start: where in the buffer the first document begins.

    A document without `_id` gets a new ObjectId in front. Meta values are normalised: the fields of every object in
    them, also within arrays, sorted by name; they are equal where their bytes are.

    Raises:
        ValueError: the buffer is not a sequence of BSON documents (the content of a document that is cut wrong inside is
            refused by itself, with code 22).

    Lets other threads run.
    """

@final
class BucketBuilder:
    """A bucket that is being filled: columns, minima and maxima, and what decides whether it takes one more."""

    def __new__(
        cls,
        time_field: str,
        meta: bytes | None,
        bucket_id: bytes,
        min_ms: int,
        version: int = 2,
        collate: Callable[[str], bytes] | None = None,
    ) -> BucketBuilder:
        """An empty bucket.

        Args:
            meta: as `Run.meta`.
            bucket_id: the twelve bytes of its `_id`.
            min_ms: its rounded start, which becomes `control.min.<time>`.
            version: 2 (columns; 3 once a measurement comes late) or 1 (plain).
            collate: gives the bytes that a string sorts by, for minima and maxima; without it strings compare byte by byte.
        """

    @staticmethod
    def from_document(bucket: bytes, time_field: str, collate: Callable[[str], bytes] | None = None) -> BucketBuilder:
        """Go on with a stored bucket of any version; one of version 1 is sorted and becomes 2.

        Raises:
            BucketError: it is not well formed.
        """

    def append_run(
        self,
        run: Run,
        start: int,
        *,
        span_ms: int,
        max_count: int,
        effective_max: int,
        absolute_max: int,
        min_count: int,
        large_threshold: int = 512,
    ) -> tuple[int, str | None, bool]:
        """Take measurements of the run from position `start` on, until one does not fit or the run ends.

        Returns:
            How many were taken; why the next was not (`time_forward`, `time_backward`, `count`, `size`, `schema`), None at
            the end of the run; and whether the bucket was kept open beyond `effective_max` because it holds fewer than
            `min_count` measurements. The rules are tried in that order; sizes are bytes. An empty bucket takes any
            measurement within its span.
        """

    def document(self) -> bytes:
        """The whole bucket as it is to be stored; what was taken since the last call is sorted by time and encoded now."""

    @property
    def count(self) -> int:
        """Measurements in it, those not yet encoded included."""

    def clone(self) -> BucketBuilder:
        """A copy that grows apart from this one: what to go back to when a commit fails."""

    @property
    def uncommitted(self) -> int:
        """Measurements that came after the last `document()`."""

    @property
    def min_ms(self) -> int:
        """Its rounded start."""

    @property
    def max_ms(self) -> int:
        """The latest time in it; its start while it is empty."""

    @property
    def size_bytes(self) -> int:
        """Its size for the closing rules."""

    @property
    def memory_bytes(self) -> int:
        """About what it takes in memory."""

    @property
    def version(self) -> int:
        """Schema version that `document()` writes (or wrote)."""

    @property
    def bucket_id(self) -> bytes:
        """The twelve bytes of its `_id`."""

    @property
    def meta(self) -> bytes | None:
        """As `Run.meta`."""

def unpack_rows(
    bucket: bytes,
    time_field: str,
    meta_field: str | None,
    include: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
) -> list[bytes]:
    """The measurements of a bucket of any version as raw documents: time, meta, then the columns in stored order.

    Args:
        include: only these top-level fields (by their names in the measurement).
        exclude: all but these. At most one of the two.

    Raises:
        BucketError: with the codes of `$_internalUnpackBucket`.

    Lets other threads run.
    """

def unpack_many(
    buckets: Sequence[bytes],
    time_field: str,
    meta_field: str | None,
    include: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
) -> RowBlock:
    """`unpack_rows` of several buckets, one after the other; their columns are unpacked, and no document is written yet."""

@final
class RowBlock:
    """Rows that are no objects of Python: documents that are written already, or measurements that still are columns.

    Immutable. Made by `unpack_many` and `BucketColumns.build_rows`.
    """

    def __len__(self) -> int: ...
    def raws(self, start: int = 0, stop: int | None = None) -> list[bytes]:
        """The rows from `start` up to and without `stop` (None: the end) as raw documents."""

    def select(self, positions: NDArray[np.int64]) -> RowBlock:
        """The rows at these positions, in this order.

        Raises:
            IndexError: there is no such row.
        """

@final
class RowArray:
    """Rows that become an array in a reply, gathered up to a size."""

    def __new__(cls, bytes_max: int = ...) -> RowArray:
        """An empty one.

        Args:
            bytes_max: how many bytes rows and their places in the array may take; none unless the first alone is larger.
        """

    def __len__(self) -> int: ...
    @property
    def elements_bytes(self) -> int:
        """How many bytes the rows take as elements of an array."""

    def take(self, rows: RowBlock | list[bytes], start: int, stop: int) -> int:
        """Take the rows from `start` up to and without `stop`, as far as there is room; returns how many were taken.

        Raises:
            IndexError: there are no such rows.
        """

    def raws(self) -> list[bytes]:
        """The rows as raw documents."""

    def write(self, before: bytes, after: bytes) -> bytes | memoryview:
        """Some bytes, then the rows as elements of an array (the first is called 0), then some bytes.

        Each row is written once, into what is returned. Lets other threads run.
        """

@final
class BucketPack:
    """A pack of buckets, read; see `make_pack`.

    What buckets are given as to functions that unpack them may be heads from here: bytes of a class of their own with the
    attributes `pack` and `number`.
    """

    def __init__(self, heads: bytes, body: bytes) -> None:
        """Read a pack.

        Raises:
            ValueError: it is not what `make_pack` made.
        """

    def __len__(self) -> int: ...
    @property
    def held_bytes(self) -> int:
        """About the memory that it takes when all of it has been read."""

    def heads(self) -> list[bytes]:
        """The documents of the buckets without `data`, in order."""

    def document(self, number: int) -> bytes:
        """The document of a bucket, as it was given to `make_pack`.

        Raises:
            ValueError: it is not what `make_pack` made.
        """

    def tells_true(self, number: int) -> bool:
        """Whether counts, sums and extremes that are told of a bucket are those of its columns.

        Raises:
            ValueError: it is not what `make_pack` made.
        """

def make_pack(documents: Sequence[bytes]) -> tuple[bytes, bytes] | None:
    """Keep buckets by columns: heads, which are to be compressed, and a body, which is so already.

    None where one of them is not of the form that an insert gives a bucket. Lets other threads run.
    """

@final
class BucketTotals:
    """What buckets tell of themselves without their columns, a row for each."""

    def __init__(
        self,
        buckets: Sequence[bytes],
        time_field: str,
        sums: Sequence[str],
        least: Sequence[str],
        greatest: Sequence[str],
    ) -> None:
        """Ask for sums, least and greatest values of fields; heads of packs tell them, documents do not.

        Raises:
            BucketError: a bucket is not well formed.
        """

    @property
    def counts(self) -> NDArray[np.uint64]:
        """Measurements of each bucket."""

    @property
    def fits(self) -> NDArray[np.bool_]:
        """Which buckets tell all that was asked for."""

    @property
    def time_bounds(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """As `BucketColumns.time_bounds`."""

    @property
    def metas(self) -> list[bytes | None]:
        """As `BucketColumns.metas`."""

@final
class BucketColumns:
    """The columns of many buckets, one bucket after the other. Made by `unpack_columns`."""

    def __len__(self) -> int: ...
    @property
    def fields(self) -> list[str]:
        """The fields that were asked for, or all that occur, in the order in which they were met."""

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Where the rows of each bucket begin, and at last how many rows there are."""

    @property
    def time_bounds(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For each bucket a time that none of its measurements is before, and one that none is after, as control says."""

    @property
    def metas(self) -> list[bytes | None]:
        """The meta of each bucket, as `Run.meta`."""

    def column(self, field: str) -> tuple[int, NDArray[Any], NDArray[np.bool_] | None]:
        """The values of a field: BSON type byte, values, and which rows have one (None where all do).

        Type and values, one for each row, 0 where there is none:

        * 1: double, float64;
        * 16, 18, 9, 17: int32, int64, date (milliseconds) and timestamp (as stored), int64;
        * 8: bool, bool;
        * 2: string, uint32, positions in `strings(field)`; 2**32 - 1 where there is none;
        * 0: no row has a value; zeros;
        * 255: other or several types: int64, one more than rows; row `i` is `raw(field)[values[i]:values[i + 1]]`.

        Raises:
            KeyError: the field was not asked for.
        """

    def strings(self, field: str) -> list[str]:
        """The different strings of a column of type 2.

        Raises:
            KeyError: it is no such column.
        """

    def raw(self, field: str) -> bytes:
        """The values of a column of type 255, each a type byte and a value.

        Raises:
            KeyError: it is no such column.
        """

    def build_rows(self, positions: NDArray[np.int64], meta_field: str | None = None) -> RowBlock:
        """Raw documents of the rows at these positions, as `unpack_rows` builds them from the fields that are here.

        Args:
            meta_field: the name that the meta gets; None leaves it out.

        Raises:
            IndexError: there is no such row.
        """

def unpack_columns(buckets: Sequence[bytes], time_field: str, fields: Sequence[str] | None = None) -> BucketColumns:
    """The named fields of buckets of any version (None: all fields) as typed arrays.

    Raises:
        BucketError: as `unpack_rows`.

    Lets other threads run.
    """

def unpack_edges(
    buckets: Sequence[bytes], time_field: str, fields: Sequence[str] | None, newest: bool
) -> BucketColumns:
    """`unpack_columns`, but of buckets in packs that tell their newest (or oldest) measurement this one alone.

    They tell it if no other has its time and their columns are of types that streams hold.
    """

def unpack_columns_beside(
    buckets: Sequence[bytes], time_field: str, fields: Sequence[str], threads: int
) -> list[BucketColumns]:
    """`unpack_columns` of some buckets on each of up to so many threads; together they are all buckets, in order."""

@final
class GroupRuns:
    """Which rows belong to which groups: rows from `starts[i]` to `stops[i]` to the slot `slots[i]`."""

    def __new__(
        cls,
        rows: int,
        groups: int,
        starts: NDArray[np.int64],
        stops: NDArray[np.int64],
        slots: NDArray[np.int64],
    ) -> GroupRuns:
        """Check the runs.

        Raises:
            ValueError: a run leaves the rows, or a slot is not below `groups`.
        """

@final
class GroupSums:
    """The sums of groups. Columns have as many rows as the runs that come with them, else a ValueError is raised."""

    def add_whole(
        self, runs: GroupRuns, wide: bool, values: NDArray[np.int64], present: NDArray[np.bool_] | None
    ) -> None:
        """Take whole numbers, of 64 bits if `wide`. Lets other threads run."""

    def add_doubles(self, runs: GroupRuns, values: NDArray[np.float64], present: NDArray[np.bool_] | None) -> bool:
        """Take doubles; False, and nothing done, where `within_sums` says no. Lets other threads run."""

    def add_constant(self, runs: GroupRuns, value: int) -> None:
        """Take a whole number for every row."""

    def add_totals(self, runs: GroupRuns, totals: BucketTotals, field: str) -> None:
        """Take what buckets tell of a field; the rows of the runs are buckets.

        Raises:
            KeyError: the field was not asked for.
        """

    def add_constant_totals(self, runs: GroupRuns, totals: BucketTotals, value: int) -> None:
        """Take a whole number for every measurement; the rows of the runs are buckets."""

    def kept(self, slot: int) -> tuple[str, bool, list[float], float, bool, int]:
        """Sum of the whole numbers, whether any was wide, doubles whose exact sum is that of the finite doubles, the sum of
        the others, whether there was any double, and how many numbers there were."""

    def results(
        self, start: int, stop: int
    ) -> tuple[NDArray[np.uint8], list[int], NDArray[np.float64], NDArray[np.uint64]]:
        """Of each slot the type of the sum (16 or 18 for whole numbers, 1), the sum of the whole numbers, the sum of all
        where there was a double, and how many numbers there were."""

def within_sums(values: NDArray[np.float64]) -> bool:
    """Whether doubles may be added up: none is so large that a sum of them might leave the doubles on its way."""

@final
class GroupSpreads:
    """Standard deviations of groups, by Welford's recurrence; errors as for `GroupSums`."""

    def add(self, runs: GroupRuns, values: NDArray[np.float64], present: NDArray[np.bool_] | None) -> None:
        """Take doubles. Lets other threads run."""

    def results(self, start: int, stop: int) -> list[tuple[int, float, float]]:
        """Of each slot how many numbers there were, their mean, and the sum of the squares of what they differ by from it."""

@final
class GroupExtremes:
    """The least or greatest values of groups; errors as for `GroupSums`."""

    def __new__(cls, greatest: bool) -> GroupExtremes: ...
    def add_whole(
        self, runs: GroupRuns, kind: int, values: NDArray[np.int64], present: NDArray[np.bool_] | None
    ) -> None:
        """Take int32, int64 or dates, by their type byte. Lets other threads run."""

    def add_doubles(self, runs: GroupRuns, values: NDArray[np.float64], present: NDArray[np.bool_] | None) -> None:
        """Take doubles. Lets other threads run."""

    def add_totals(self, runs: GroupRuns, totals: BucketTotals, field: str) -> None:
        """As `GroupSums.add_totals`."""

    def results(self, start: int, stop: int) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.float64]]:
        """Of each slot the type byte (0 where it has no value), and the value where it is whole or a double."""

def window_sums(
    values: NDArray[np.float64], present: NDArray[np.bool_] | None, lows: NDArray[np.int64], highs: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.int64]] | None:
    """The sums of windows (rows from `lows[i]` up to and without `highs[i]`), each exact and rounded once, and how many
    values are in each; None where a value is no finite number or so large that sums might leave the doubles.

    All functions of windows let other threads run, and raise a ValueError for a window outside of the rows.
    """

def window_whole_sums(
    values: NDArray[np.int64], present: NDArray[np.bool_] | None, lows: NDArray[np.int64], highs: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """The same of whole numbers; None where a sum leaves 64 bits."""

def window_extremes(
    values: NDArray[np.float64],
    present: NDArray[np.bool_] | None,
    lows: NDArray[np.int64],
    highs: NDArray[np.int64],
    greatest: bool,
) -> NDArray[np.int64]:
    """The row of the least or greatest value of each window, of equal ones the first; -1 where it has none."""

def window_whole_extremes(
    values: NDArray[np.int64],
    present: NDArray[np.bool_] | None,
    lows: NDArray[np.int64],
    highs: NDArray[np.int64],
    greatest: bool,
) -> NDArray[np.int64]:
    """The same of whole numbers."""

def window_deviations(
    values: NDArray[np.float64],
    present: NDArray[np.bool_] | None,
    lows: NDArray[np.int64],
    highs: NDArray[np.int64],
    sample: bool,
    growing: bool,
) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """Standard deviations by Welford's recurrence from the beginning of each window, with their types: 0 for null, 16 for the
    whole number 0, which a window of one value has, 1 for doubles.

    Args:
        growing: windows that begin with the same row go on from each other; null only where there are too few values.
    """

def window_covariances(
    lefts: NDArray[np.float64],
    rights: NDArray[np.float64],
    present: NDArray[np.bool_] | None,
    lows: NDArray[np.int64],
    highs: NDArray[np.int64],
    sample: bool,
) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """Covariances of pairs that come in and go out one by one, with their types: 0 for null, 1."""

def moving_average(
    values: NDArray[np.float64], present: NDArray[np.bool_] | None, starts: NDArray[np.int64], weight: float
) -> NDArray[np.float64]:
    """Exponential moving averages of partitions that begin at `starts`; undefined where there is no value."""

def window_places(
    keys: NDArray[np.int64], wanted: NDArray[np.int64], starts: NDArray[np.int64], through: bool
) -> NDArray[np.int64]:
    """For each row the first row of its partition whose key is not less than what is wanted (greater, if `through`).

    Raises:
        ValueError: partitions that begin at `starts` do not fit the rows.
    """

def window_double_places(
    keys: NDArray[np.float64], wanted: NDArray[np.float64], starts: NDArray[np.int64], through: bool
) -> NDArray[np.int64]:
    """The same of doubles, none of which is NaN."""

def arrange_rows(
    blocks: Sequence[RowBlock | list[bytes]],
    positions: NDArray[np.int64],
    fields: Sequence[tuple[str, NDArray[np.uint8], NDArray[np.int64], Sequence[str] | None]] = ...,
    kept: dict[str, Any] | None = None,
) -> RowBlock:
    """Rows of some blocks, numbered through, at these positions, with further fields in the places of those of their names,
    or at the end.

    Args:
        fields: each a name, and for each row a type byte (double, string, bool, date, int32, int64; null for any other)
            and the bits of the value, which of strings are places in the last item.
        kept: the names of the fields that stay, each with None, or with those that stay of the objects in it; None for all.
            Further fields come behind them then.

    Raises:
        IndexError: there is no such row.
        ValueError: a field of another number of rows.
        BucketError: the rows take too much memory.

    Lets other threads run.
    """

def bucket_summary(bucket: bytes, time_field: str) -> tuple[int, int, bool, int, int]:
    """Count, version, closed, and control.min and control.max of the time (milliseconds) of a bucket.

    Raises:
        BucketError: it has no well-formed control.
    """

@final
class OpenSeries:
    """The current bucket of each series of a collection, with what stands for it (`bucket`, any object)."""

    def __new__(cls) -> OpenSeries: ...
    def __len__(self) -> int:
        """Series that have one."""

    def get(self, meta: bytes | None) -> Any:
        """What stands for the current bucket of a series; None where it has none."""

    def set(self, meta: bytes | None, bucket: object, builder: BucketBuilder, min_ms: int, span_ms: int) -> None:
        """Let a bucket be the current one of its series: it takes measurements from `min_ms` on, up to `span_ms` later."""

    def remove(self, meta: bytes | None) -> None:
        """Let the series have no current bucket."""

    def place(
        self,
        batch: Partition,
        *,
        span_ms: int,
        max_count: int,
        effective_max: int,
        absolute_max: int,
        min_count: int,
        large_threshold: int = 512,
    ) -> tuple[list[Any], list[tuple[Run, bytes | None, int, str | None]], int]:
        """Append each run to the current bucket of its series, where its first time lies within that.

        Returns:
            What stands for the buckets that took something and had nothing before that `document()` has not seen; the runs
            that are left, each with its meta, from which position on, and why (None where there is no bucket to ask);
            and how many buckets were kept open although they are large.

        The limits are those of `BucketBuilder.append_run`. Lets other threads run.
        """

def bucket_documents(builders: list[BucketBuilder]) -> list[tuple[bytes, bytes, int, int]]:
    """Of each bucket its document, the document's fingerprint, about what it takes in memory, and its version.

    Lets other threads run.
    """

def fingerprint(document: bytes) -> bytes:
    """Sixteen bytes that tell these bytes from others; no protection against somebody who looks for equal ones."""

def keep_rows(
    bucket: bytes, time_field: str, keep: bytes, collate: Callable[[str], bytes] | None = None
) -> bytes | None:
    """The bucket with only the rows whose byte in `keep` is not 0, rewritten with the same `_id` and `control.min` of time.

    None where no row is left. Raises BucketError as `unpack_rows`.
    """

def merge_buckets(
    buckets: list[bytes],
    time_field: str,
    meta_field: str | None,
    *,
    rounding_ms: int,
    version: int,
    span_ms: int,
    max_count: int,
    effective_max: int,
    absolute_max: int,
    min_count: int,
    large_threshold: int = 512,
    collate: Callable[[str], bytes] | None = None,
) -> bytes | None:
    """One bucket in the place of several of one series, under the id of the first, whose times begin before those of the others.

    Their measurements are appended as `BucketBuilder.append_run` does it. None where it would not have taken one of them,
    where a bucket is closed or its meta another one, and where the result would not be a valid bucket or hold anything else
    than they do.

    Args:
        rounding_ms: as `validate_bucket`.
        version: as `BucketBuilder`.

    Raises:
        BucketError: a bucket is not well formed.

    Lets other threads run.
    """

def bucket_in_order(bucket: bytes, time_field: str) -> bytes | None:
    """A bucket of version 3 with its measurements in the order of time, as one of version 2; None for other versions.

    Raises:
        BucketError: it is not well formed.

    Lets other threads run.
    """

def validate_bucket(
    bucket: bytes,
    time_field: str,
    meta_field: str | None,
    span_ms: int,
    rounding_ms: int,
    collate: Callable[[str], bytes] | None = None,
) -> list[str]:
    """What is wrong with a stored bucket: control against data, order, counts, names, versions; empty where nothing is."""

def column_decode(column: bytes, entries_max: int) -> list[bytes | None]:
    """The entries of a BSONColumn, each a type byte and a value; None where one is missing.

    Raises:
        ValueError: it is not well formed, or has more entries.
    """

def column_encode(values: Sequence[bytes | None]) -> bytes:
    """The BSONColumn of entries as `column_decode` gives them."""

def validate_document(document: bytes, depth_max: int = 200) -> None:
    """Check a raw document wholly: lengths, names, UTF-8, types, nesting.

    Raises:
        ValueError: what is wrong.
    """

def narrow_documents(documents: Sequence[bytes], names: Sequence[str]) -> list[bytes]:
    """Raw documents with those of their top-level fields that have one of these names, in their order.

    Raises:
        ValueError: the bytes are no BSON.
    """

def split_documents(buffer: bytes) -> list[bytes]:
    """The raw documents that lie back to back in a buffer; only their lengths are looked at.

    Raises:
        ValueError: the buffer does not end with a document.
    """

def array_to_documents(array: bytes) -> list[bytes]:
    """The raw documents in a raw array.

    Raises:
        ValueError: it is no array, or holds something else.
    """

def concat_array(documents: list[bytes]) -> bytes:
    """A raw array of raw documents, which are not looked at."""

def find_field(document: bytes, name: str) -> tuple[int, bytes] | None:
    """Type byte and raw value of the first top-level field of this name.

    Raises:
        ValueError: the document is cut wrong before it.
    """

def with_id(document: bytes) -> bytes:
    """The document with its `_id` as first field, a new ObjectId where it had none; the same object if nothing changes.

    Raises:
        ValueError: the document is cut wrong.
    """

def compare_values(left: bytes, right: bytes) -> int:
    """-1, 0 or 1 as one value stands to another in the order of BSON; each is its type byte and its value.

    Raises:
        ValueError: one of them is no BSON.
    """

def new_object_id() -> bytes:
    """The twelve bytes of a new ObjectId."""

def set_object_id_clock(stopped_at_ms: int | None, ahead_ms: int) -> None:
    """Make the times in new ObjectIds those of another clock than the system's.

    Args:
        stopped_at_ms: where the clock stands still; None where it runs.
        ahead_ms: how far it is ahead of the system's, where it runs.
    """
