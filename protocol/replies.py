"""Replies put together from raw documents, without decoding one of them."""

import struct
from collections.abc import Sequence
from typing import Final

from ..common.values import Document, encode

_INT32: Final = struct.Struct("<i")
_INT64: Final = struct.Struct("<q")
_OK: Final = b"\x01ok\0" + struct.pack("<d", 1.0)


def _array_prefixes(count: int) -> list[bytes]:
    return [b"\x03" + str(position).encode() + b"\0" for position in range(count)]


# Type byte and name of the elements of an array of documents; grown to the largest batch seen.
_PREFIXES: list[bytes] = _array_prefixes(1024)


def array_of_documents(name: bytes, raws: Sequence[bytes]) -> bytes:
    """The BSON element `name: [documents]`."""
    if len(raws) > len(_PREFIXES):
        _PREFIXES.extend(_array_prefixes(len(raws))[len(_PREFIXES) :])
    parts: list[bytes] = [b""] * (2 * len(raws))
    parts[0::2] = _PREFIXES[: len(raws)]
    parts[1::2] = raws
    content = b"".join(parts)
    return b"".join((b"\x04", name, b"\0", _INT32.pack(len(content) + 5), content, b"\0"))


def document_of_elements(*elements: bytes) -> bytes:
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
    raws: Sequence[bytes],
    extra: Document | None = None,
    *,
    cursor_extra: Document | None = None,
) -> bytes:
    """The whole reply `{cursor: {firstBatch | nextBatch: [...], [cursor_extra], id, ns}, [extra], ok: 1.0}`."""
    name = namespace.encode()
    cursor = document_of_elements(
        array_of_documents(b"firstBatch" if first else b"nextBatch", raws),
        elements_of(cursor_extra or {}),
        b"\x12id\0" + _INT64.pack(cursor_id),
        b"\x02ns\0" + _INT32.pack(len(name) + 1) + name + b"\0",
    )
    return document_of_elements(b"\x03cursor\0", cursor, elements_of(extra or {}), _OK)


def success(document: Document) -> bytes:
    """The reply of a command that went well: its document and `ok: 1.0`."""
    return document_of_elements(elements_of(document), _OK)


def with_elements(reply: bytes, extra: Document) -> bytes:
    """A raw reply with further fields at its end."""
    return document_of_elements(reply[4:-1], elements_of(extra))
