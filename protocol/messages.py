"""OP_MSG: sections to a body and document sequences, and replies back to bytes.

A document sequence stays one buffer of raw documents; none of them is decoded, and their framing is checked by whoever
takes them apart.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ..common.errors import (
    ChecksumMismatch,
    IllegalOpMsgFlag,
    InvalidBSON,
    Location,
    MongoError,
    TooManyDocumentSequences,
    Unauthorized,
)
from .documents import document_size
from .framing import HEADER, HEADER_BYTES, OpCode

_INT32: Final = struct.Struct("<i")
_UINT32: Final = struct.Struct("<I")
_REPLY_PREFIX: Final = struct.Struct("<iiiiIB")

_FLAGS_BYTES: Final = 4
_CHECKSUM_BYTES: Final = 4
_REQUIRED_BITS: Final = 0xFFFF
_SEQUENCES_MAX: Final = 2

_BODY: Final = 0
_DOCUMENT_SEQUENCE: Final = 1
_SECURITY_TOKEN: Final = 2


class MessageFlag:
    """The flag bits of OP_MSG; plain numbers, because every message is asked for them several times."""

    CHECKSUM_PRESENT: Final = 1 << 0
    MORE_TO_COME: Final = 1 << 1
    EXHAUST_ALLOWED: Final = 1 << 16


_KNOWN_REQUIRED_BITS: Final = MessageFlag.CHECKSUM_PRESENT | MessageFlag.MORE_TO_COME


@dataclass(frozen=True, slots=True)
class Message:
    """One OP_MSG, taken apart."""

    request_id: int
    flags: int
    body: bytes
    """Raw BSON."""
    sequences: Mapping[str, bytes]
    """Raw documents one after another, by identifier."""

    @property
    def wants_reply(self) -> bool:
        """False where the client said that it reads none."""
        return not self.flags & MessageFlag.MORE_TO_COME

    @property
    def exhaust_allowed(self) -> bool:
        """Whether several replies may follow."""
        return bool(self.flags & MessageFlag.EXHAUST_ALLOWED)


def closes_connection(error: MongoError) -> bool:
    """Whether the connection is closed after the reply that tells this parse error."""
    return isinstance(error, ChecksumMismatch | IllegalOpMsgFlag | TooManyDocumentSequences)


def flags_of(message: bytes) -> int:
    """The flag bits of a whole OP_MSG, 0 where it is too short to have any."""
    if len(message) < HEADER_BYTES + _FLAGS_BYTES:
        return 0
    flags: int = _UINT32.unpack_from(message, HEADER_BYTES)[0]
    return flags


def parse_message(message: bytes) -> Message:
    """Take a whole OP_MSG (header included) apart.

    Raises:
        MongoError: it is malformed, with the code that the client is told.
    """
    end = len(message)
    if end < HEADER_BYTES + _FLAGS_BYTES:
        raise InvalidBSON("OP_MSG is too small to hold its flags")
    request_id: int = _INT32.unpack_from(message, 4)[0]
    flags: int = _UINT32.unpack_from(message, HEADER_BYTES)[0]
    unknown = flags & _REQUIRED_BITS & ~_KNOWN_REQUIRED_BITS
    if unknown:
        raise IllegalOpMsgFlag(f"Message contains illegal flags value: Ob{flags:b}")
    at = HEADER_BYTES + _FLAGS_BYTES
    if flags & MessageFlag.CHECKSUM_PRESENT:
        if end - at < _CHECKSUM_BYTES:
            raise Location(51251, "Message too small to contain checksum")
        end -= _CHECKSUM_BYTES
        _verify_checksum(message, end)
    return Message(request_id, flags, *_sections(message, at, end))


def _sections(message: bytes, at: int, end: int) -> tuple[bytes, Mapping[str, bytes]]:
    body: bytes | None = None
    sequences: dict[str, bytes] = {}
    while at < end:
        kind = message[at]
        at += 1
        if kind == _BODY:
            if body is not None:
                raise Location(40430, "Multiple body sections in message")
            size = document_size(message, at, end)
            body = message[at : at + size]
        elif kind == _DOCUMENT_SEQUENCE:
            size = _sequence(message, at, end, sequences)
        elif kind == _SECURITY_TOKEN:
            raise Unauthorized("Security tokens are not accepted")
        else:
            raise Location(40432, f"Unknown section kind {kind}")
        at += size
    if body is None:
        raise Location(40587, "OP_MSG messages must have a body")
    return body, sequences


def _sequence(message: bytes, at: int, end: int, sequences: dict[str, bytes]) -> int:
    """Read the document sequence at `at` into `sequences`; returns its size."""
    if len(sequences) >= _SEQUENCES_MAX:
        raise TooManyDocumentSequences("Too many document sequences in OP_MSG")
    if end - at < _INT32.size:
        raise InvalidBSON("document sequence is cut off")
    size: int = _INT32.unpack_from(message, at)[0]
    if not _INT32.size < size <= end - at:
        raise InvalidBSON(f"invalid size {size} of a document sequence")
    name_start = at + _INT32.size
    name_end = message.find(b"\0", name_start, at + size)
    if name_end < 0:
        raise InvalidBSON("identifier of a document sequence is not terminated")
    try:
        name = message[name_start:name_end].decode()
    except UnicodeDecodeError as error:
        raise InvalidBSON("identifier of a document sequence is not valid UTF-8") from error
    if name in sequences:
        raise Location(40431, f"Duplicate document sequence: {name}")
    sequences[name] = message[name_end + 1 : at + size]
    return size


def build_message(
    body: bytes | memoryview, *, request_id: int, response_to: int, more_to_come: bool = False, checksum: bool = False
) -> bytes:
    """A whole OP_MSG with one body section, of raw BSON."""
    flags = (MessageFlag.MORE_TO_COME if more_to_come else 0) | (MessageFlag.CHECKSUM_PRESENT if checksum else 0)
    length = _REPLY_PREFIX.size + len(body) + (_CHECKSUM_BYTES if checksum else 0)
    message = _REPLY_PREFIX.pack(length, request_id, response_to, OpCode.MSG, flags, _BODY) + body
    return message + _UINT32.pack(_crc32c(message)) if checksum else message


def message_head(body_bytes: int, *, request_id: int, response_to: int, more_to_come: bool = False) -> bytes:
    """What comes before a body of this size: a large one is not copied behind it. There is no checksum then."""
    flags = MessageFlag.MORE_TO_COME if more_to_come else 0
    return _REPLY_PREFIX.pack(_REPLY_PREFIX.size + body_bytes, request_id, response_to, OpCode.MSG, flags, _BODY)


def with_header(op_code: int, content: bytes, *, request_id: int, response_to: int) -> bytes:
    """A whole message of any kind."""
    return HEADER.pack(HEADER_BYTES + len(content), request_id, response_to, op_code) + content


def _verify_checksum(message: bytes, end: int) -> None:
    claimed = _UINT32.unpack_from(message, end)[0]
    if _crc32c(message[:end]) != claimed:
        raise ChecksumMismatch("OP_MSG checksum does not match contents")


def _crc32c(content: bytes) -> int:
    # Hardly a client sends checksums: the kernels are not loaded for those who do not.
    from ..kernels import crc32c

    return crc32c(content)
