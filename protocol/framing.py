"""Bytes of a socket to whole messages, and the header that each begins with."""

import itertools
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from ..common.limits import MESSAGE_BYTES_MAX

HEADER: Final = struct.Struct("<iiii")
HEADER_BYTES: Final = HEADER.size

_INT32: Final = struct.Struct("<i")


class OpCode(IntEnum):
    """The kinds of messages that are still spoken; any other closes the connection."""

    REPLY = 1
    QUERY = 2004
    COMPRESSED = 2012
    MSG = 2013


class BrokenStream(Exception):
    """What came in has no answer, and nothing after it can be trusted: the connection is closed without a reply."""


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a message."""

    length: int
    request_id: int
    response_to: int
    op_code: int

    @classmethod
    def of(cls, message: bytes) -> "Header":
        """The header of a whole message."""
        return cls(*HEADER.unpack_from(message, 0))


class FrameReader:
    """Cuts what a socket delivers, at whatever places, into whole messages.

    A length that no message can have is found as soon as the header is there, before anything of the message is kept.
    """

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._held = 0
        self._wanted = HEADER_BYTES
        self.limit = MESSAGE_BYTES_MAX
        """The longest message that is taken."""

    @property
    def wanted_bytes(self) -> int:
        """Length of the message that is not yet whole, as far as it is known."""
        return self._wanted

    @property
    def held_bytes(self) -> int:
        """Bytes of the message that is not yet whole."""
        return self._held

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that are whole now.

        Raises:
            BrokenStream: a length below 16 or above the limit.
        """
        held = self._held
        self._held += len(data)
        # Joining only when a message is whole keeps a large one, which comes in many pieces, linear.
        if self._held < self._wanted:
            self._chunks.append(data)
            return []
        messages: list[bytes] = []
        buffer, at = data, 0
        if held >= HEADER_BYTES:
            # What completes a message is joined, what follows it is not.
            at = self._wanted - held
            messages.append(b"".join([*self._chunks, memoryview(data)[:at]]))
        elif held:
            buffer = b"".join([*self._chunks, data])
        end = len(buffer)
        self._wanted = HEADER_BYTES
        while end - at >= HEADER_BYTES:
            length: int = _INT32.unpack_from(buffer, at)[0]
            if not HEADER_BYTES <= length <= self.limit:
                raise BrokenStream(f"message length {length} is invalid")
            if end - at < length:
                self._wanted = length
                break
            messages.append(buffer if length == end and at == 0 else buffer[at : at + length])
            at += length
        self._chunks = [buffer[at:] if at else buffer] if at < end else []
        self._held = end - at
        return messages


_request_ids = itertools.count(1)


def next_request_id() -> int:
    """A number for a message of ours; unique until it wraps after two billion."""
    return next(_request_ids) & 0x7FFFFFFF
