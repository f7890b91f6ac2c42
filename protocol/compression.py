"""OP_COMPRESSED: the compressors that can be negotiated, and the envelope around a compressed message.

The libraries are loaded with the first message that needs them.
"""

import struct
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar, Final

from ..common.limits import MESSAGE_BYTES_MAX
from ..common.zstd import zstd
from .framing import HEADER_BYTES, BrokenStream, Header, OpCode
from .messages import with_header

_ENVELOPE: Final = struct.Struct("<iiB")

NEVER_COMPRESSED: Final = frozenset(
    {
        "hello",
        "isMaster",
        "ismaster",
        "saslStart",
        "saslContinue",
        "getnonce",
        "authenticate",
        "createUser",
        "updateUser",
        "copydbSaslStart",
        "copydbgetnonce",
        "copydb",
    }
)
"""Commands whose replies go out uncompressed."""


class Compressor(ABC):
    """One way to make messages smaller."""

    number: ClassVar[int]
    name: ClassVar[str]

    @abstractmethod
    def compress(self, content: bytes) -> bytes:
        """The content, smaller."""

    @abstractmethod
    def decompress(self, compressed: bytes, size: int) -> bytes:
        """The content, which the sender says is `size` bytes long; never more than a few bytes beyond it.

        Raises any exception where the input is broken.
        """


class Noop(Compressor):
    """Leaves the bytes as they are; clients use it in tests."""

    number = 0
    name = "noop"

    def compress(self, content: bytes) -> bytes:
        """See `Compressor.compress`."""
        return content

    def decompress(self, compressed: bytes, size: int) -> bytes:
        """See `Compressor.decompress`."""
        return compressed


class Snappy(Compressor):
    """Snappy's block format, without framing."""

    number = 1
    name = "snappy"

    def compress(self, content: bytes) -> bytes:
        """See `Compressor.compress`."""
        from cramjam import snappy

        return bytes(snappy.compress_raw(content))

    def decompress(self, compressed: bytes, size: int) -> bytes:
        """See `Compressor.decompress`."""
        from cramjam import snappy

        # The block says its own length, which the library would allocate.
        if _snappy_length(compressed) != size:
            raise ValueError("snappy block has another length than announced")
        return bytes(snappy.decompress_raw(compressed))


class Zlib(Compressor):
    """A zlib stream."""

    number = 2
    name = "zlib"

    def compress(self, content: bytes) -> bytes:
        """See `Compressor.compress`."""
        return zlib.compress(content)

    def decompress(self, compressed: bytes, size: int) -> bytes:
        """See `Compressor.decompress`."""
        stream = zlib.decompressobj()
        content = stream.decompress(compressed, size + 1)
        if not stream.eof and len(content) <= size:
            content += stream.decompress(stream.unconsumed_tail, 1)
        if not stream.eof:
            raise ValueError("zlib stream has no end")
        return content


class Zstandard(Compressor):
    """One Zstandard frame."""

    number = 3
    name = "zstd"

    def compress(self, content: bytes) -> bytes:
        """See `Compressor.compress`."""
        return bytes(zstd().compress(content))

    def decompress(self, compressed: bytes, size: int) -> bytes:
        """See `Compressor.decompress`."""
        frame = zstd().ZstdDecompressor()
        content = bytes(frame.decompress(compressed, max_length=size + 1))
        if not frame.eof:
            raise ValueError("zstd frame has no end")
        return content


COMPRESSORS: Final[tuple[Compressor, ...]] = (Noop(), Snappy(), Zlib(), Zstandard())
"""By their number on the wire."""

NEGOTIABLE: Final = ("snappy", "zstd", "zlib")
"""What the server offers unless it is told otherwise, in its own order of preference."""


def negotiate(offered: Iterable[object], ours: Sequence[str] = NEGOTIABLE) -> tuple[str, ...]:
    """What both sides speak, in the client's order."""
    common: list[str] = []
    for name in offered:
        if isinstance(name, str) and name in ours and name not in common:
            common.append(name)
    return tuple(common)


def claimed_bytes(message: bytes) -> int:
    """How long a whole OP_COMPRESSED says that its message is; 0 where it is cut off."""
    if len(message) < HEADER_BYTES + _ENVELOPE.size:
        return 0
    return max(0, int(_ENVELOPE.unpack_from(message, HEADER_BYTES)[1]))


def decompress(message: bytes, negotiated: Sequence[str]) -> tuple[bytes, Compressor]:
    """The message within a whole OP_COMPRESSED, with a header of its own, and the compressor that the client used.

    Raises:
        BrokenStream: the envelope lies, or the compressor was not agreed upon.
    """
    header = Header.of(message)
    if len(message) < HEADER_BYTES + _ENVELOPE.size:
        raise BrokenStream("compressed message is cut off")
    op_code, size, number = _ENVELOPE.unpack_from(message, HEADER_BYTES)
    if op_code == OpCode.COMPRESSED:
        raise BrokenStream("compressed message within a compressed message")
    if not 0 <= size <= MESSAGE_BYTES_MAX - HEADER_BYTES:
        raise BrokenStream(f"compressed message claims {size} bytes")
    if number >= len(COMPRESSORS):
        raise BrokenStream(f"unknown compressor {number}")
    compressor = COMPRESSORS[number]
    if compressor.name not in negotiated:
        raise BrokenStream(f"compressor {compressor.name} was not negotiated")
    try:
        content = compressor.decompress(message[HEADER_BYTES + _ENVELOPE.size :], size)
    except Exception as error:  # each library has errors of its own; all of them mean the same here
        raise BrokenStream(f"compressed message cannot be read: {error}") from error
    if len(content) != size:
        raise BrokenStream(f"compressed message has another length than the announced {size} bytes")
    return with_header(op_code, content, request_id=header.request_id, response_to=header.response_to), compressor


def compress(message: bytes, compressor: Compressor) -> bytes:
    """A whole OP_COMPRESSED around a whole message."""
    header = Header.of(message)
    envelope = _ENVELOPE.pack(header.op_code, len(message) - HEADER_BYTES, compressor.number)
    return with_header(
        OpCode.COMPRESSED,
        envelope + compressor.compress(message[HEADER_BYTES:]),
        request_id=header.request_id,
        response_to=header.response_to,
    )


def _snappy_length(compressed: bytes) -> int:
    length = 0
    for position, byte in enumerate(compressed[:5]):
        length |= (byte & 0x7F) << (7 * position)
        if not byte & 0x80:
            return length
    raise ValueError("snappy block has no length")
