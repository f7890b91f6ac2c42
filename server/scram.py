"""SCRAM-SHA-1 and SCRAM-SHA-256 (RFC 5802, RFC 7677): stored credentials, and one conversation of a server.

Nothing here knows of users or connections: who asks, hands in the credentials. The conversation of a user who does not
exist runs like any other, over credentials made from a secret of the process, and fails at its end.
"""

import base64
import hashlib
import hmac
import secrets
import stringprep
import unicodedata
from dataclasses import dataclass
from typing import Final, Literal, Self

from ..common.errors import AuthenticationFailed, BadValue, Location

Mechanism = Literal["SCRAM-SHA-1", "SCRAM-SHA-256"]
MECHANISMS: Final[tuple[Mechanism, ...]] = ("SCRAM-SHA-1", "SCRAM-SHA-256")

_HASHES: Final[dict[Mechanism, str]] = {"SCRAM-SHA-1": "sha1", "SCRAM-SHA-256": "sha256"}
_SALT_BYTES: Final[dict[Mechanism, int]] = {"SCRAM-SHA-1": 16, "SCRAM-SHA-256": 28}
DEFAULT_ITERATIONS: Final[dict[Mechanism, int]] = {"SCRAM-SHA-1": 10_000, "SCRAM-SHA-256": 15_000}
_NONCE_BYTES: Final = 24
_CHANNEL_NOT_BOUND: Final = ("n", "y")


@dataclass(frozen=True, slots=True)
class ScramCredentials:
    """What the server keeps of a password, for one mechanism."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    @classmethod
    def make(cls, mechanism: Mechanism, user: str, password: str, *, iterations: int | None = None) -> Self:
        """Credentials of a new password, with a random salt.

        Raises:
            Location: 50692, the password has characters that SASLprep prohibits; 50687, it is empty.
        """
        return cls.derive(
            mechanism,
            user,
            password,
            salt=secrets.token_bytes(_SALT_BYTES[mechanism]),
            iterations=iterations or DEFAULT_ITERATIONS[mechanism],
        )

    @classmethod
    def derive(cls, mechanism: Mechanism, user: str, password: str, *, salt: bytes, iterations: int) -> Self:
        """The same with a given salt."""
        name = _HASHES[mechanism]
        if mechanism == "SCRAM-SHA-1":
            # The form that MONGODB-CR left behind: the digest stands for the password, and is not normalised.
            secret = hashlib.md5(f"{user}:mongo:{password}".encode(), usedforsecurity=False).hexdigest().encode()
        else:
            secret = saslprep(password).encode()
        salted = hashlib.pbkdf2_hmac(name, secret, salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", name)
        return cls(iterations, salt, hashlib.new(name, client_key).digest(), hmac.digest(salted, b"Server Key", name))

    @classmethod
    def from_document(cls, document: dict[str, object]) -> Self:
        """From the form in which `admin.system.users` keeps them."""
        return cls(
            int(str(document["iterationCount"])),
            *(base64.b64decode(str(document[name])) for name in ("salt", "storedKey", "serverKey")),
        )

    def to_document(self) -> dict[str, object]:
        """The form in which `admin.system.users` keeps them."""
        return {
            "iterationCount": self.iterations,
            "salt": base64.b64encode(self.salt).decode(),
            "storedKey": base64.b64encode(self.stored_key).decode(),
            "serverKey": base64.b64encode(self.server_key).decode(),
        }


_SECRET_OF_PROCESS: Final = secrets.token_bytes(32)


def credentials_of_nobody(mechanism: Mechanism, user: str, database: str) -> ScramCredentials:
    """Credentials that no password fits, the same for a name each time, so that names cannot be guessed."""
    salt = hmac.digest(_SECRET_OF_PROCESS, f"{mechanism}\0{database}\0{user}".encode(), "sha256")
    return ScramCredentials(
        DEFAULT_ITERATIONS[mechanism],
        salt[: _SALT_BYTES[mechanism]],
        secrets.token_bytes(hashlib.new(_HASHES[mechanism]).digest_size),
        secrets.token_bytes(hashlib.new(_HASHES[mechanism]).digest_size),
    )


def user_of_first_message(payload: bytes) -> str:
    """The user that a client-first message names.

    Raises:
        AuthenticationFailed: the message is malformed, or asks for channel binding.
    """
    return _ClientFirst.parse(payload).user


@dataclass(frozen=True, slots=True)
class _ClientFirst:
    header: str
    bare: str
    user: str
    nonce: str

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        try:
            binding, authorize, *rest = payload.decode().split(",")
        except (UnicodeDecodeError, ValueError):
            raise AuthenticationFailed("Authentication failed.") from None
        attributes = dict(part.split("=", 1) for part in rest if "=" in part)
        if binding not in _CHANNEL_NOT_BOUND or not rest[:2] or "n" not in attributes or not attributes.get("r"):
            raise AuthenticationFailed("Authentication failed.")
        user = attributes["n"]
        if "=" in user.replace("=2C", "").replace("=3D", ""):
            raise AuthenticationFailed("Authentication failed.")
        user = user.replace("=2C", ",").replace("=3D", "=")
        if authorize and authorize != f"a={attributes['n']}":
            raise AuthenticationFailed("Authentication failed.")
        return cls(f"{binding},{authorize},", ",".join(rest), user, attributes["r"])


class ScramConversation:
    """One login: `first` answers the client's first message, `final` checks its proof."""

    def __init__(self, mechanism: Mechanism, credentials: ScramCredentials) -> None:
        self._hash = _HASHES[mechanism]
        self._credentials = credentials
        self._nonce = ""
        self._header = ""
        self._message = ""

    def first(self, payload: bytes, *, nonce: str | None = None) -> bytes:
        """The server-first message. `nonce` is the server's own part, random where it is left out."""
        client = _ClientFirst.parse(payload)
        self._nonce = client.nonce + (nonce or base64.b64encode(secrets.token_bytes(_NONCE_BYTES)).decode())
        self._header = client.header
        salt = base64.b64encode(self._credentials.salt).decode()
        reply = f"r={self._nonce},s={salt},i={self._credentials.iterations}"
        self._message = f"{client.bare},{reply}"
        return reply.encode()

    def final(self, payload: bytes) -> bytes:
        """The server-final message.

        Raises:
            AuthenticationFailed: the proof, the nonce or the form of the message is wrong.
        """
        try:
            without_proof, _, proof_text = payload.decode().rpartition(",p=")
            attributes = dict(part.split("=", 1) for part in without_proof.split(","))
            proof = base64.b64decode(proof_text, validate=True)
            header = base64.b64decode(attributes["c"], validate=True).decode()
        except (ValueError, KeyError):
            raise AuthenticationFailed("Authentication failed.") from None
        message = f"{self._message},{without_proof}".encode()
        signature = hmac.digest(self._credentials.stored_key, message, self._hash)
        if len(proof) != len(signature):
            raise AuthenticationFailed("Authentication failed.")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        known = hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), self._credentials.stored_key)
        if not known or header != self._header or not hmac.compare_digest(attributes.get("r", ""), self._nonce):
            raise AuthenticationFailed("Authentication failed.")
        return b"v=" + base64.b64encode(hmac.digest(self._credentials.server_key, message, self._hash))


_PROHIBITED: Final = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
    stringprep.in_table_a1,
)


def saslprep(password: str) -> str:
    """The password as RFC 4013 normalises it.

    Raises:
        Location: 50692 for prohibited characters, 50687 for an empty password.
        BadValue: left-to-right and right-to-left characters are mixed as the RFC forbids.
    """
    if not password:
        raise Location(50687, "Error preflighting UTF-8 conversion: U_STRING_NOT_TERMINATED_WARNING")
    if password.isascii() and password.isprintable():
        return password
    mapped = "".join(
        " " if stringprep.in_table_c12(character) else character
        for character in password
        if not stringprep.in_table_b1(character)
    )
    prepared = unicodedata.ucd_3_2_0.normalize("NFKC", mapped)
    if any(prohibited(character) for character in prepared for prohibited in _PROHIBITED):
        raise Location(50692, "Error preflighting normalization: U_STRINGPREP_PROHIBITED_ERROR")
    right_to_left = [stringprep.in_table_d1(character) for character in prepared]
    if any(right_to_left) and (
        not (right_to_left[0] and right_to_left[-1]) or any(stringprep.in_table_d2(character) for character in prepared)
    ):
        raise BadValue("Error preflighting normalization: U_STRINGPREP_CHECK_BIDI_ERROR")
    return prepared
