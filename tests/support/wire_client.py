"""A small client that speaks the wire protocol and nothing else, and can also speak it wrongly."""

import itertools
import socket
import struct
from dataclasses import dataclass, field
from typing import Any

import bson
from bson.codec_options import CodecOptions, DatetimeConversion

OP_REPLY = 1
OP_QUERY = 2004
OP_COMPRESSED = 2012
OP_MSG = 2013

CHECKSUM_PRESENT = 1
MORE_TO_COME = 2
EXHAUST_ALLOWED = 1 << 16

_CODEC: CodecOptions[dict[str, Any]] = CodecOptions(
    document_class=dict, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)
_TIMEOUT_SECONDS = 20


@dataclass
class Reply:
    """What came back: the header, and the document in it."""

    request_id: int
    response_to: int
    op_code: int
    flags: int
    document: dict[str, Any]
    raw: bytes = field(repr=False, default=b"")


def body_section(document: dict[str, Any]) -> bytes:
    return b"\0" + bson.encode(document)


def sequence_section(identifier: str, documents: list[dict[str, Any]]) -> bytes:
    content = identifier.encode() + b"\0" + b"".join(bson.encode(document) for document in documents)
    return b"\1" + struct.pack("<i", len(content) + 4) + content


def message(*sections: bytes, flags: int = 0, request_id: int = 1, op_code: int = OP_MSG, tail: bytes = b"") -> bytes:
    content = struct.pack("<I", flags) + b"".join(sections) + tail
    return with_header(op_code, content, request_id)


def with_header(op_code: int, content: bytes, request_id: int = 1) -> bytes:
    return struct.pack("<iiii", 16 + len(content), request_id, 0, op_code) + content


def query(namespace: str, document: dict[str, Any], *, wanted: int = -1, request_id: int = 1) -> bytes:
    content = struct.pack("<i", 0) + namespace.encode() + b"\0" + struct.pack("<ii", 0, wanted) + bson.encode(document)
    return with_header(OP_QUERY, content, request_id)


class Closed(Exception):
    """The server closed the connection."""


class WireClient:
    """One connection."""

    def __init__(self, port: int, database: str = "test") -> None:
        self.database = database
        self._ids = itertools.count(1)
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_TIMEOUT_SECONDS)

    def __enter__(self) -> "WireClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def end_input(self) -> None:
        """Say that nothing more will be sent, and go on listening."""
        self._socket.shutdown(socket.SHUT_WR)

    def send(self, content: bytes) -> None:
        self._socket.sendall(content)

    def ask(self, document: dict[str, Any], *sections: bytes, flags: int = 0) -> dict[str, Any]:
        """Send a command and return the reply; `$db` is added where it is not there."""
        request_id = next(self._ids)
        self.tell(document, *sections, flags=flags, request_id=request_id)
        reply = self.receive()
        assert reply.response_to == request_id
        return reply.document

    def tell(
        self, document: dict[str, Any], *sections: bytes, flags: int = MORE_TO_COME, request_id: int | None = None
    ) -> None:
        """Send a command and do not wait for a reply."""
        whole = {**document} if "$db" in document else {**document, "$db": self.database}
        number = next(self._ids) if request_id is None else request_id
        self.send(message(body_section(whole), *sections, flags=flags, request_id=number))

    def ask_raw(self, content: bytes) -> Reply:
        """Send bytes as they are and return the reply."""
        self.send(content)
        return self.receive()

    def receive(self) -> Reply:
        """The next reply.

        Raises:
            Closed: there is none.
        """
        header = self._read(16)
        length, request_id, response_to, op_code = struct.unpack("<iiii", header)
        content = self._read(length - 16)
        if op_code == OP_REPLY:
            flags = struct.unpack_from("<i", content)[0]
            document = bson.decode(content[20:], _CODEC)
        elif op_code == OP_MSG:
            flags = struct.unpack_from("<I", content)[0]
            end = len(content) - (4 if flags & CHECKSUM_PRESENT else 0)
            document = bson.decode(content[5:end], _CODEC)
        else:
            flags, document = 0, {}
        return Reply(request_id, response_to, op_code, flags, document, header + content)

    def is_closed(self) -> bool:
        """Whether the server closes the connection without another word. Waits for it to do one or the other."""
        try:
            self.receive()
        except Closed:
            return True
        return False

    def _read(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            try:
                part = self._socket.recv(count - len(parts))
            except ConnectionError as error:
                raise Closed from error
            if not part:
                raise Closed
            parts += part
        return bytes(parts)
