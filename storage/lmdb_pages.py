"""The pages of an LMDB file, read without LMDB: whether every tree is whole, and every page is owned once.

LMDB trusts its file: what it maps it follows. So a file that was cut off or overwritten is looked at here first, where a
page that points to nowhere is a line in a report, and no fault of the process.
"""

import mmap
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from .errors import Corrupted

_MAGIC: Final = 0xBEEFC0DE
_DATA_VERSION: Final = 1
_PAGE_HEADER: Final = struct.Struct("<QHHHH")
_META: Final = struct.Struct("<IIQQ")
_TREE: Final = struct.Struct("<IHHQQQQQ")
_TAIL: Final = struct.Struct("<QQ")
_NODE: Final = struct.Struct("<HHHH")
_NUMBER: Final = struct.Struct("<Q")
_COUNT: Final = struct.Struct("<I")
_HEADER_BYTES: Final = 16
_META_PAGES: Final = 2
_NO_PAGE: Final = 2**64 - 1
_BRANCH, _LEAF, _OVERFLOW, _META_FLAG = 0x01, 0x02, 0x04, 0x08
_BIG_DATA, _SUB_DATA, _DUPLICATES = 0x01, 0x02, 0x04
_PAGE_BYTES_KNOWN: Final = frozenset(1 << bits for bits in range(9, 17))
_PROBLEMS_MAX: Final = 50


@dataclass(slots=True)
class Tree:
    """What a meta page or a leaf says of a tree."""

    branch_pages: int
    leaf_pages: int
    overflow_pages: int
    entries: int
    depth: int
    root: int
    pad: int

    @classmethod
    def read(cls, raw: bytes | memoryview, at: int) -> "Tree":
        """The tree whose record begins at a position."""
        pad, _, depth, branch, leaf, overflow, entries, root = _TREE.unpack_from(raw, at)
        return cls(branch, leaf, overflow, entries, depth, root, pad)


@dataclass(slots=True)
class Meta:
    """The newer of the two roots of a file."""

    page_bytes: int
    map_bytes: int
    transaction: int
    last_page: int
    free: Tree
    main: Tree


@dataclass(slots=True)
class PageReport:
    """What was seen of a file."""

    page_bytes: int = 0
    pages: int = 0
    """Pages that the file is said to have."""
    used: int = 0
    free: int = 0
    lost: int = 0
    """Pages that no tree and no list of free pages knows: room that is wasted, and no damage."""
    transaction: int = 0
    tables: dict[str, int] = field(default_factory=dict)
    """Entries by table."""
    errors: list[str] = field(default_factory=list)

    def tell(self, problem: str) -> None:
        """Note what is wrong; what exceeds a page of text is left out."""
        if len(self.errors) < _PROBLEMS_MAX:
            self.errors.append(problem)


class PageFile:
    """An LMDB file that is open for looking at."""

    def __init__(self, path: Path) -> None:
        """Map the file and read its roots.

        Raises:
            Corrupted: it has no valid root.
            OSError: it cannot be read.
        """
        with open(path, "rb") as file:
            self.size = os.fstat(file.fileno()).st_size
            if self.size < _META_PAGES * 512:
                raise Corrupted(f"{path} has {self.size} bytes, which is less than any store has")
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._view = memoryview(self._map)
        try:
            self.meta = self._newest_root(path)
        except Corrupted:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the file."""
        self._view.release()
        self._map.close()

    @property
    def bytes_wanted(self) -> int:
        """Size of a file that holds every page that there may be."""
        return (self.meta.last_page + 1) * self.meta.page_bytes

    def check(self) -> PageReport:
        """Follow every tree; tell of pages that are not what they should be, or belong to two."""
        meta = self.meta
        report = PageReport(page_bytes=meta.page_bytes, pages=meta.last_page + 1, transaction=meta.transaction)
        walk = _Walk(self._view, self.size, meta, report)
        free = [
            (number, data)
            for key, data, _ in walk.tree("list of free pages", meta.free, numbers=True)
            for number in [_NUMBER.unpack(key)[0] if len(key) == _NUMBER.size else 0]
        ]
        for key, data, flags in walk.tree("list of tables", meta.main):
            name = key.decode("utf-8", "replace")
            if not flags & _SUB_DATA or len(data) != _TREE.size:
                report.tell(f"the list of tables holds {name!r}, which is no table")
                continue
            tree = Tree.read(data, 0)
            report.tables[name] = sum(1 for _ in walk.tree(f"table {name}", tree))
        walk.free_pages(free)
        return report

    def _newest_root(self, path: Path) -> Meta:
        first = self._root(0, 0)
        if first is None:
            # The first page does not say how long pages are: the second lies one page behind it.
            candidates = [self._root(1, size) for size in sorted(_PAGE_BYTES_KNOWN)]
            roots = [root for root in candidates if root is not None]
        else:
            second = self._root(1, first.page_bytes)
            roots = [first] if second is None else [first, second]
        if len(roots) < _META_PAGES:
            raise Corrupted(f"{path}: {'both root pages are' if not roots else 'a root page is'} damaged")
        return max(roots, key=lambda root: root.transaction)

    def _root(self, number: int, page_bytes: int) -> Meta | None:
        at = number * page_bytes
        if at + _HEADER_BYTES + _META.size + 2 * _TREE.size + _TAIL.size > self.size:
            return None
        page, _, flags, _, _ = _PAGE_HEADER.unpack_from(self._view, at)
        if page != number or not flags & _META_FLAG:
            return None
        at += _HEADER_BYTES
        magic, version, _, map_bytes = _META.unpack_from(self._view, at)
        if magic != _MAGIC or version != _DATA_VERSION:
            return None
        at += _META.size
        free, main = Tree.read(self._view, at), Tree.read(self._view, at + _TREE.size)
        last_page, transaction = _TAIL.unpack_from(self._view, at + 2 * _TREE.size)
        if free.pad not in _PAGE_BYTES_KNOWN:
            return None
        return Meta(free.pad, map_bytes, transaction, last_page, free, main)


class _Walk:
    """A walk through all trees of a file, which notes whose every page is."""

    def __init__(self, view: memoryview, size: int, meta: Meta, report: PageReport) -> None:
        self._view = view
        self._size = size
        self._page_bytes = meta.page_bytes
        self._last_page = meta.last_page
        self._report = report
        # A damaged root may claim any number of pages; no page behind the end of the file is ever noted.
        self._owned = bytearray(min(meta.last_page, size // meta.page_bytes) + 1)
        self._owned[:_META_PAGES] = b"\1" * min(_META_PAGES, len(self._owned))
        report.used = _META_PAGES

    def tree(self, name: str, tree: Tree, *, numbers: bool = False) -> Iterator[tuple[bytes, bytes, int]]:
        """Key, value and flags of every entry; pages are checked on the way.

        Args:
            name: of the tree, for the report.
            numbers: keys are numbers of this machine and not bytes.
        """
        if tree.root == _NO_PAGE:
            if tree.entries:
                self._report.tell(f"{name}: empty, and said to hold {tree.entries} entries")
            return
        seen = {_BRANCH: 0, _LEAF: 0, _OVERFLOW: 0}
        entries = 0
        last: bytes | int | None = None
        # The children of a page are pushed in reverse, so that entries come in their order.
        stack = [(tree.root, 1)]
        while stack:
            page, depth = stack.pop()
            flags = self._claim(name, page)
            if not flags:
                continue
            kind = _LEAF if depth == tree.depth else _BRANCH
            if flags & (_BRANCH | _LEAF) != kind:
                self._report.tell(f"{name}: page {page} is of the wrong kind at depth {depth} of {tree.depth}")
                continue
            seen[kind] += 1
            nodes = self._nodes(name, page)
            if kind == _BRANCH:
                children = [low | high << 16 | bits << 32 for low, high, bits, _, _ in nodes]
                if not children:
                    self._report.tell(f"{name}: page {page} has no children")
                stack.extend((child, depth + 1) for child in reversed(children))
                continue
            for low, high, bits, at, key in nodes:
                order: bytes | int = _NUMBER.unpack(key)[0] if numbers and len(key) == _NUMBER.size else key
                if last is not None and type(last) is type(order) and not last < order:  # type: ignore[operator]
                    self._report.tell(f"{name}: keys of page {page} are not in order")
                last = order
                entries += 1
                data, pages = self._data(name, page, at, low | high << 16, bits)
                seen[_OVERFLOW] += pages
                if data is not None:
                    yield key, data, bits
        said = (tree.branch_pages, tree.leaf_pages, tree.overflow_pages, tree.entries)
        found = (seen[_BRANCH], seen[_LEAF], seen[_OVERFLOW], entries)
        if said != found:
            self._report.tell(
                f"{name}: said to have {said[0]} branch, {said[1]} leaf and {said[2]} long pages with {said[3]} entries; "
                f"found {found[0]}, {found[1]}, {found[2]} and {found[3]}"
            )

    def free_pages(self, lists: list[tuple[int, bytes]]) -> None:
        """Note the free pages, and count those that nobody knows."""
        report = self._report
        for transaction, data in lists:
            if len(data) % _NUMBER.size or not data:
                report.tell(f"list of free pages: the list of transaction {transaction} is damaged")
                continue
            count, *pages = struct.unpack(f"<{len(data) // _NUMBER.size}Q", data)
            if count > len(pages):
                report.tell(f"list of free pages: the list of transaction {transaction} is cut off")
            for page in pages[:count]:
                if not _META_PAGES <= page <= self._last_page:
                    report.tell(f"list of free pages: there is no page {page}")
                elif page < len(self._owned):
                    if self._owned[page]:
                        report.tell(f"list of free pages: page {page} is in use, or free twice")
                    self._owned[page] = 1
                    report.free += 1
                else:
                    # Set aside and never written: the file need not be so long.
                    report.free += 1
        report.lost = report.pages - report.used - report.free

    def _claim(self, name: str, page: int, count: int = 1) -> int:
        """Note that pages are of this tree; returns the flags of the first, 0 where it cannot be."""
        if not _META_PAGES <= page <= page + count - 1 <= self._last_page:
            self._report.tell(f"{name}: there is no page {page}")
            return 0
        if (page + count) * self._page_bytes > self._size:
            self._report.tell(f"{name}: page {page} lies behind the end of the file")
            return 0
        if any(self._owned[page : page + count]):
            self._report.tell(f"{name}: page {page} belongs to something else as well")
            return 0
        number, _, flags, _, _ = _PAGE_HEADER.unpack_from(self._view, page * self._page_bytes)
        if number != page:
            self._report.tell(f"{name}: page {page} says that it is page {number}")
            return 0
        self._owned[page : page + count] = b"\1" * count
        self._report.used += count
        if not flags & (_BRANCH | _LEAF | _OVERFLOW):
            self._report.tell(f"{name}: page {page} is of no known kind")
        return int(flags)

    def _nodes(self, name: str, page: int) -> list[tuple[int, int, int, int, bytes]]:
        """Two halves of a number, flags, position of the data, and key of each node of a page."""
        start = page * self._page_bytes
        _, _, flags, lower, upper = _PAGE_HEADER.unpack_from(self._view, start)
        if not _HEADER_BYTES <= lower <= upper <= self._page_bytes or lower % 2:
            self._report.tell(f"{name}: the head of page {page} is damaged")
            return []
        count = (lower - _HEADER_BYTES) // 2
        found = []
        for offset in struct.unpack_from(f"<{count}H", self._view, start + _HEADER_BYTES):
            if not upper <= offset <= self._page_bytes - _NODE.size:
                self._report.tell(f"{name}: an entry of page {page} lies outside of it")
                return []
            low, high, bits, key_bytes = _NODE.unpack_from(self._view, start + offset)
            key_at = offset + _NODE.size
            data_bytes = 0
            if flags & _LEAF:
                data_bytes = _NUMBER.size if bits & _BIG_DATA else low | high << 16
            if key_at + key_bytes + data_bytes > self._page_bytes:
                self._report.tell(f"{name}: an entry of page {page} lies outside of it")
                return []
            key_at += start
            found.append((low, high, bits, key_at + key_bytes, bytes(self._view[key_at : key_at + key_bytes])))
        return found

    def _data(self, name: str, page: int, at: int, size: int, bits: int) -> tuple[bytes | None, int]:
        """The value of an entry, None where it is lost; and the pages of its own that it has."""
        if bits & _DUPLICATES:
            self._report.tell(f"{name}: page {page} has duplicates, which no table has")
            return None, 0
        if not bits & _BIG_DATA:
            return bytes(self._view[at : at + size]), 0
        first = _NUMBER.unpack_from(self._view, at)[0]
        count = (_HEADER_BYTES + size + self._page_bytes - 1) // self._page_bytes
        flags = self._claim(name, first, count)
        if not flags:
            return None, 0
        start = first * self._page_bytes
        if not flags & _OVERFLOW or _COUNT.unpack_from(self._view, start + 12)[0] != count:
            self._report.tell(f"{name}: page {first} is not the long value that it should be")
            return None, 0
        # Long values are documents, which the catalog reads and checks: nobody needs them here.
        return bytes(self._view[start + _HEADER_BYTES : start + _HEADER_BYTES + size]), count
