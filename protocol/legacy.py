"""OP_QUERY, with which older drivers say hello, and the OP_REPLY that answers it."""

import struct
from dataclasses import dataclass
from typing import Final

from ..common.errors import Location, UnsupportedOpQueryCommand
from ..common.values import Document, decode, encode
from .documents import document_size
from .framing import HEADER_BYTES, BrokenStream, OpCode
from .messages import with_header

_INT32: Final = struct.Struct("<i")
_TWO_INT32: Final = struct.Struct("<ii")
_REPLY: Final = struct.Struct("<iqii")

_QUERY_FAILURE: Final = 2
_AWAIT_CAPABLE: Final = 8

_COMMAND_SUFFIX: Final = ".$cmd"
_HELLO: Final = frozenset({"hello", "isMaster", "ismaster"})
_NEWS: Final = "For more details see https://dochub.mongodb.org/core/legacy-opcode-removal"


@dataclass(frozen=True, slots=True)
class LegacyCommand:
    """A command that came as OP_QUERY."""

    request_id: int
    name: str
    body: bytes
    """Raw BSON without `$query` around it; it has no `$db`."""
    database: str


class NotACommand(Exception):
    """A query of the old kind. The reply has a form of its own: see `build_query_failure`."""


def parse_query(message: bytes) -> LegacyCommand:
    """The command in a whole OP_QUERY.

    Raises:
        MongoError: a command that cannot be run in this form, with the code that the client is told.
        NotACommand: it is a query.
        BrokenStream: it is cut off.
    """
    end = len(message)
    name_start = HEADER_BYTES + _INT32.size
    name_end = message.find(b"\0", name_start, end)
    at = name_end + 1
    if name_end < 0 or end - at < _TWO_INT32.size:
        raise BrokenStream("OP_QUERY is cut off")
    namespace = message[name_start:name_end].decode(errors="replace")
    _, wanted = _TWO_INT32.unpack_from(message, at)
    at += _TWO_INT32.size
    if not namespace.endswith(_COMMAND_SUFFIX):
        raise NotACommand(namespace)
    size = document_size(message, at, end)
    raw = message[at : at + size]
    body = decode(raw)
    first = next(iter(body), "")
    if first in ("$query", "query") and isinstance(body[first], dict):
        body = body[first]
        raw = encode(body)
        first = next(iter(body), "")
    if wanted not in (1, -1):
        raise Location(16979, f"Bad numberToReturn ({wanted}) for $cmd type ns - can only be 1 or -1")
    if first not in _HELLO:
        raise UnsupportedOpQueryCommand(
            f"Unsupported OP_QUERY command: {first}. The client driver may require an upgrade. {_NEWS}"
        )
    if "$db" in body:
        raise Location(40621, "$db is not allowed in OP_QUERY requests")
    request_id: int = _INT32.unpack_from(message, 4)[0]
    return LegacyCommand(request_id, first, raw, namespace.removesuffix(_COMMAND_SUFFIX))


def build_reply(body: bytes, *, request_id: int, response_to: int, flags: int = _AWAIT_CAPABLE) -> bytes:
    """A whole OP_REPLY with one raw document."""
    return with_header(OpCode.REPLY, _REPLY.pack(flags, 0, 0, 1) + body, request_id=request_id, response_to=response_to)


def build_query_failure(*, request_id: int, response_to: int) -> bytes:
    """The OP_REPLY to a query that is no command."""
    body: Document = {
        "$err": f"OP_QUERY is no longer supported. The client driver may require an upgrade. {_NEWS}",
        "code": 5739101,
        "ok": 0.0,
    }
    return build_reply(encode(body), request_id=request_id, response_to=response_to, flags=_QUERY_FAILURE)
