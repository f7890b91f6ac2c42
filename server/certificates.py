"""What a certificate says of whom: its subject as RFC 2253 writes it, and when it ends.

Only the few fields that are needed are read from the DER; whether a certificate is to be trusted is OpenSSL's to say.
"""

import base64
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

_SEQUENCE: Final = 0x30
_SET: Final = 0x31
_OID: Final = 0x06
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_TEXTS: Final = {0x0C: "utf-8", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1C: "utf-32-be", 0x1E: "utf-16-be"}
"""Encodings of DER's kinds of text."""

_SHORT_NAMES: Final = {
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
    "1.2.840.113549.1.9.1": "emailAddress",
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
}
"""Attributes with a name of their own; others are written as their numbers."""

_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)
_SPECIAL: Final = frozenset(',+"\\<>;')


@dataclass(frozen=True, slots=True)
class Certificate:
    """The fields of a certificate that the server looks at."""

    subject: str
    """The distinguished name, last part first: `CN=alice,OU=people,O=example`."""
    expires_ms: int
    """Milliseconds since 1970."""


def first_certificate(pem: str) -> Certificate:
    """The first certificate of a PEM file, which is the one that the file is about.

    Raises:
        ValueError: there is none, or it cannot be read.
    """
    found = _CERTIFICATE.search(pem)
    if found is None:
        raise ValueError("no certificate in it")
    return read_certificate(base64.b64decode(found.group(1)))


def read_certificate(der: bytes) -> Certificate:
    """The fields of a certificate in DER.

    Raises:
        ValueError: it is no certificate.
    """
    try:
        whole = _children(_children(der)[0][1])
        fields = _children(whole[0][1])
        if fields[0][0] == _VERSION:
            del fields[0]
        # serial number, signature's algorithm, issuer, validity, subject
        _, _, _, validity, subject = fields[:5]
        _, (kind, ends) = _children(validity[1])[:2]
        return Certificate(_distinguished_name(subject[1]), _moment_ms(kind, ends))
    except (IndexError, UnicodeDecodeError) as error:
        raise ValueError("not a certificate") from error


def _children(data: bytes) -> list[tuple[int, bytes]]:
    """Tags and contents of the values that stand one after another."""
    found: list[tuple[int, bytes]] = []
    at = 0
    while at < len(data):
        tag, length = data[at], data[at + 1]
        at += 2
        if length & 0x80:
            digits = length & 0x7F
            length = int.from_bytes(data[at : at + digits], "big")
            at += digits
        if at + length > len(data):
            raise ValueError("not a certificate")
        found.append((tag, data[at : at + length]))
        at += length
    return found


def _moment_ms(kind: int, content: bytes) -> int:
    text = content.decode("ascii").removesuffix("Z")
    if kind == _UTC_TIME:
        # Two digits of the year: 50 to 99 are of the last century.
        text = ("19" if text[:2] >= "50" else "20") + text
    return int(datetime.strptime(text, "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp() * 1000)


def _distinguished_name(name: bytes) -> str:
    parts: list[str] = []
    for tag, relative in _children(name):
        if tag != _SET:
            raise ValueError("not a certificate")
        attributes = []
        for _, pair in _children(relative):
            (_, identifier), (kind, content) = _children(pair)[:2]
            number = _dotted(identifier)
            attributes.append(f"{_SHORT_NAMES.get(number, number)}={_value(kind, content)}")
        parts.append("+".join(attributes))
    return ",".join(reversed(parts))


def _dotted(identifier: bytes) -> str:
    numbers: list[int] = []
    number = 0
    for byte in identifier:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _value(kind: int, content: bytes) -> str:
    encoding = _TEXTS.get(kind)
    if encoding is None:
        return "#" + bytes((kind, len(content))).hex() + content.hex()
    text = content.decode(encoding)
    escaped = "".join(
        f"\\{character}" if character in _SPECIAL else f"\\{ord(character):02X}" if character < " " else character
        for character in text
    )
    if text[:1] in ("#", " "):
        escaped = "\\" + escaped
    if len(text) > 1 and text.endswith(" "):
        escaped = escaped[:-1] + "\\ "
    return escaped
