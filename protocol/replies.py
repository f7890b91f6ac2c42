"""Replies put together from raw documents, without decoding one of them."""

import struct
from typing import Final

from ..common.values import Document, encode
from ..kernels import RowArray

_INT32: Final = struct.Struct("<i")
_INT64: Final = struct.Struct("<q")
_CURSOR: Final = b"\x03cursor\0"
_OK: Final = b"\x01ok\0" + struct.pack("<d", 1.0)


Reply = bytes | memoryview
"""A raw document; a large one as a view of where it was written."""


def document_of_elements(*elements: Reply) -> bytes:
    """A raw document of elements that are BSON already."""
    size = 5 + sum(map(len, elements))
    return b"".join((_INT32.pack(size), *elements, b"\0"))


def elements_of(document: Document) -> bytes:
    """The elements of a document, to be put into another."""
    return encode(document)[4:-1] if document else b""


def cursor_reply(
    first: bool,
    cursor_id: int,
    namespace: str,
    rows: RowArray,
    extra: Document | None = None,
    *,
    cursor_extra: Document | None = None,
) -> Reply:
    """The whole reply `{cursor: {firstBatch | nextBatch: [...], [cursor_extra], id, ns}, [extra], ok: 1.0}`.

    The rows are written straight to their places in it.
    """
    name = namespace.encode()
    array = b"\x04firstBatch\0" if first else b"\x04nextBatch\0"
    array_bytes = rows.elements_bytes + 5
    cursor_rest = b"".join(
        (
            elements_of(cursor_extra or {}),
            b"\x12id\0" + _INT64.pack(cursor_id),
            b"\x02ns\0" + _INT32.pack(len(name) + 1) + name + b"\0\0",
        )
    )
    cursor_bytes = 4 + len(array) + array_bytes + len(cursor_rest)
    rest = elements_of(extra or {}) + _OK + b"\0"
    before = b"".join(
        (
            _INT32.pack(4 + len(_CURSOR) + cursor_bytes + len(rest)),
            _CURSOR,
            _INT32.pack(cursor_bytes),
            array,
            _INT32.pack(array_bytes),
        )
    )
    return rows.write(before, b"\0" + cursor_rest + rest)


def array_of(raws: list[bytes]) -> RowArray:
    """Documents that are there already, for `cursor_reply`."""
    rows = RowArray()
    rows.take(raws, 0, len(raws))
    return rows


def success(document: Document) -> bytes:
    """The reply of a command that went well: its document and `ok: 1.0`."""
    return document_of_elements(elements_of(document), _OK)


def with_elements(reply: Reply, extra: Document) -> bytes:
    """A raw reply with further fields at its end."""
    return document_of_elements(reply[4:-1], elements_of(extra))
