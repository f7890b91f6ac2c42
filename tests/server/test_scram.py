"""SCRAM against the examples of RFC 5802 and RFC 7677 (with MongoDB's digest for SHA-1), and with wrong input."""

import base64
import hashlib
import hmac

import pytest

from bucketd.common.errors import AuthenticationFailed, Location
from bucketd.server.scram import (
    ScramConversation,
    ScramCredentials,
    credentials_of_nobody,
    saslprep,
    user_of_first_message,
)

CASES = {
    "SCRAM-SHA-1": (
        "fyko+d2lbbFgONRv9qkxdawL",
        "Ho+Vgk7qvUOKUwuWLIWg4l/9SraGMHEE",
        "rQ9ZY3MntBeuP3E1TDVC4w==",
        10000,
        "MC2T8BvbmWRckDw8oWl5IVghwCY=",
        "UMWeI25JD1yNYZRMpZ4VHvhZ9e0=",
    ),
    "SCRAM-SHA-256": (
        "rOprNGfwEbeRWgbNEkqO",
        "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        "W22ZaJ0SNY7soEsUEjb6gQ==",
        4096,
        "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ),
}


@pytest.mark.parametrize("mechanism", CASES)
def test_published_conversations(mechanism: str) -> None:
    client, server, salt, iterations, proof, signature = CASES[mechanism]
    credentials = ScramCredentials.derive(
        mechanism, "user", "pencil", salt=base64.b64decode(salt), iterations=iterations
    )
    conversation = ScramConversation(mechanism, credentials)
    assert conversation.first(f"n,,n=user,r={client}".encode(), nonce=server) == (
        f"r={client}{server},s={salt},i={iterations}".encode()
    )
    assert conversation.final(f"c=biws,r={client}{server},p={proof}".encode()) == f"v={signature}".encode()


@pytest.mark.parametrize(
    "final",
    [
        b"",
        b"c=biws",
        b"\xff",
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=AAAA",
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVE=",
        b"c=eSws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    ],
)
def test_wrong_final_messages(final: bytes) -> None:
    client, server, salt, iterations, _, _ = CASES["SCRAM-SHA-256"]
    credentials = ScramCredentials.derive(
        "SCRAM-SHA-256", "user", "pencil", salt=base64.b64decode(salt), iterations=iterations
    )
    conversation = ScramConversation("SCRAM-SHA-256", credentials)
    conversation.first(f"n,,n=user,r={client}".encode(), nonce=server)
    with pytest.raises(AuthenticationFailed):
        conversation.final(final)


@pytest.mark.parametrize(
    "first", [b"", b"n,,", b"p=tls-unique,,n=u,r=1", b"n,,n=u", b"n,,n=a=1,r=x", b"n,a=other,n=u,r=1", b"\xff"]
)
def test_wrong_first_messages(first: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        user_of_first_message(first)


def test_escaped_names() -> None:
    assert user_of_first_message(b"n,,n=a=3Db=2Cc,r=1") == "a=b,c"


def test_nobody_gets_the_same_salt_each_time_and_no_password_fits() -> None:
    first, second = (credentials_of_nobody("SCRAM-SHA-256", "ghost", "admin") for _ in range(2))
    assert first.salt == second.salt
    assert first.stored_key != second.stored_key


def test_credentials_survive_their_document() -> None:
    made = ScramCredentials.make("SCRAM-SHA-256", "user", "secret", iterations=5000)
    assert ScramCredentials.from_document(made.to_document()) == made
    salted = hashlib.pbkdf2_hmac("sha256", b"secret", made.salt, 5000)
    assert made.server_key == hmac.digest(salted, b"Server Key", "sha256")


@pytest.mark.parametrize(
    ("given", "prepared"), [("plain", "plain"), ("I\u00adX", "IX"), ("\u2168", "IX"), ("\u00aa", "a")]
)
def test_saslprep(given: str, prepared: str) -> None:
    assert saslprep(given) == prepared


@pytest.mark.parametrize(("given", "number"), [("", 50687), ("\u0007", 50692)])
def test_saslprep_refuses(given: str, number: int) -> None:
    with pytest.raises(Location) as refused:
        saslprep(given)
    assert refused.value.number == number
