"""TLS on one port with plain connections or alone, logins by certificate, certificates changed while serving."""

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from signal import SIGHUP
from typing import Any

import bson
import pytest
from cryptography import x509
from pymongo import MongoClient
from pymongo.errors import OperationFailure, ServerSelectionTimeoutError

from support.certificates import KEY_PASSWORD, Certificates
from support.server_process import ServerProcess
from support.wire_client import WireClient

Client = MongoClient[dict[str, Any]]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def options(certificates: Certificates, mode: str, *more: str, key: Path | None = None) -> list[str]:
    return [
        "--tlsMode",
        mode,
        "--tlsCertificateKeyFile",
        str(key or certificates.server),
        "--tlsCAFile",
        str(certificates.ca),
        *more,
    ]


WITHOUT = "--tlsAllowConnectionsWithoutCertificates"


@pytest.fixture(scope="module")
def both(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Plain and encrypted, with or without a certificate of the client."""
    server = ServerProcess(tmp_path_factory.mktemp("both"), *options(certificates, "preferTLS", WITHOUT))
    server.start()
    yield server
    assert server.stop() == 0


def connect(server: ServerProcess, certificates: Certificates, key: Path | None = None, **more: Any) -> Client:
    if key is not None:
        more["tlsCertificateKeyFile"] = str(key)
    return Client(server.uri, tls=True, tlsCAFile=str(certificates.ca), serverSelectionTimeoutMS=5000, **more)


def test_large_replies_arrive_whole(both: ServerProcess, certificates: Certificates) -> None:
    rows = [{"_id": number, "text": f"{number} " * 200} for number in range(8000)]
    with connect(both, certificates) as client:
        client.lab.rows.insert_many(rows)
        assert list(client.lab.rows.find(batch_size=8000)) == rows
        client.drop_database("lab")


def refused(server: ServerProcess, **more: Any) -> bool:
    with Client(server.uri, serverSelectionTimeoutMS=300, **more) as client:
        try:
            client.admin.command("ping")
        except ServerSelectionTimeoutError:
            return True
    return False


@contextmanager
def raw_tls(port: int, certificates: Certificates, **versions: Any) -> Iterator[ssl.SSLSocket]:
    context = ssl.create_default_context(cafile=str(certificates.ca))
    for name, value in versions.items():
        setattr(context, name, value)
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as encrypted,
    ):
        yield encrypted


def test_one_port_takes_both(both: ServerProcess, certificates: Certificates) -> None:
    with Client(both.uri) as plain, connect(both, certificates) as encrypted:
        before = plain.admin.command("serverStatus")["transportSecurity"]
        assert set(before) == {"1.0", "1.1", "1.2", "1.3", "unknown"}
        encrypted["both"]["t"].insert_many({"_id": number, "text": "x" * 10_000} for number in range(500))
        assert sum(len(row["text"]) for row in plain["both"]["t"].find()) == 5_000_000
        status = encrypted.admin.command("serverStatus")
    assert status["transportSecurity"]["1.3"] > before["1.3"]
    assert status["metrics"]["network"]["totalIngressTLSConnections"] == status["transportSecurity"]["1.3"]
    security = status["security"]
    assert security["SSLServerSubjectName"] == certificates.server_subject
    assert security["SSLServerHasCertificateAuthority"] is True
    made = x509.load_pem_x509_certificate(certificates.server.read_bytes())
    assert security["SSLServerCertificateExpirationDate"].replace(tzinfo=UTC) == made.not_valid_after_utc
    assert any(line["msg"] == "Waiting for connections" and line["attr"]["ssl"] == "on" for line in both.events())


def test_a_plain_message_that_begins_like_a_handshake_is_answered(both: ServerProcess) -> None:
    # 0x0316 and 0x16 + 256 bytes: the lengths begin with the first bytes of a record of TLS.
    with WireClient(both.port) as wire:
        for length in (0x0316, 0x0116):
            empty = len(bson.encode({"ping": 1, "comment": "", "$db": "admin"})) + 16 + 5
            assert wire.ask({"ping": 1, "comment": "x" * (length - empty)})["ok"] == 1.0


def test_a_handshake_that_comes_byte_by_byte_is_answered(both: ServerProcess, certificates: Certificates) -> None:
    context = ssl.create_default_context(cafile=str(certificates.ca))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    hello = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        hello.do_handshake()
    with socket.create_connection(("127.0.0.1", both.port), timeout=10) as plain:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in outgoing.read():
            plain.send(bytes([byte]))
        assert plain.recv(1) == b"\x16"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_versions_from_1_2_on(both: ServerProcess, certificates: Certificates, version: ssl.TLSVersion) -> None:
    with raw_tls(both.port, certificates, minimum_version=version, maximum_version=version) as encrypted:
        assert encrypted.version() == version.name.replace("_", ".")


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
def test_older_versions_are_refused(both: ServerProcess, certificates: Certificates) -> None:
    context = ssl.create_default_context(cafile=str(certificates.ca))
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with (
        socket.create_connection(("127.0.0.1", both.port), timeout=10) as plain,
        pytest.raises(ssl.SSLError),
    ):
        context.wrap_socket(plain, server_hostname="127.0.0.1")


def test_required_tls(certificates: Certificates, start_server: Callable[..., ServerProcess]) -> None:
    own = start_server(*options(certificates, "requireTLS", "--tlsDisabledProtocols", "TLS1_2"))
    key, subject = certificates.make_alice()
    assert refused(own)
    assert refused(own, tls=True, tlsCAFile=str(certificates.ca))
    assert refused(own, tls=True, tlsCertificateKeyFile=str(key))
    with connect(own, certificates, key) as client:
        assert client.admin.command("ping")["ok"] == 1
        assert client.admin.command("getParameter", 1, tlsMode=1)["tlsMode"] == "requireTLS"
        assert client.admin.command("getCmdLineOpts")["parsed"]["net"]["tls"]["mode"] == "requireTLS"
    with (
        pytest.raises((ssl.SSLError, ConnectionError)),
        raw_tls(own.port, certificates, maximum_version=ssl.TLSVersion.TLSv1_2) as encrypted,
    ):
        encrypted.recv(1)
    reasons = [line["attr"]["error"] for line in own.events() if line["id"] == 22988]
    assert {
        "code": 141,
        "codeName": "SSLHandshakeFailed",
        "errmsg": "The server is configured to only allow SSL connections",
    } in reasons
    assert own.errors() == []
    assert subject not in "".join(own.lines)


def test_a_key_with_a_password(certificates: Certificates, start_server: Callable[..., ServerProcess]) -> None:
    locked = certificates.make_server("locked.pem", KEY_PASSWORD)
    password = ["--tlsCertificateKeyFilePassword", KEY_PASSWORD]
    own = start_server(*options(certificates, "requireTLS", WITHOUT, *password, key=locked))
    with connect(own, certificates) as client:
        told = client.admin.command("getCmdLineOpts")
    assert told["parsed"]["net"]["tls"]["certificateKeyFilePassword"] == "<password>"
    assert KEY_PASSWORD not in str(told)
    assert KEY_PASSWORD not in "".join(own.lines)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (["--tlsMode", "allowTLS"], "tlsCertificateKeyFile"),
        (["--tlsMode", "sometimes"], "requireTLS"),
        (["--tlsMode", "requireTLS", "--tlsCertificateKeyFile", "SERVER"], "tlsCAFile"),
        (["--tlsMode", "requireTLS", "--tlsCertificateKeyFile", "CA", "--tlsCAFile", "CA"], "ca.pem"),
        (["--tlsMode", "requireTLS", "--tlsCertificateKeyFile", "LOCKED", "--tlsCAFile", "CA"], "locked.pem"),
        (["--tlsDisabledProtocols", "SSL2"], "SSL2"),
    ],
)
def test_settings_that_cannot_be(certificates: Certificates, tmp_path: Path, given: list[str], complaint: str) -> None:
    files = {
        "SERVER": certificates.server,
        "CA": certificates.ca,
        "LOCKED": certificates.make_server("locked.pem", KEY_PASSWORD),
    }
    own = ServerProcess(tmp_path, *(str(files.get(word, word)) for word in given))
    with pytest.raises(AssertionError, match=complaint):
        own.start()


def test_login_by_certificate(certificates: Certificates, start_server: Callable[..., ServerProcess]) -> None:
    own = start_server(*options(certificates, "preferTLS", WITHOUT), "--auth")
    key, subject = certificates.make_alice()
    with Client(own.uri) as first:
        first.admin.command("createUser", "boss", pwd="x", roles=["root"])
    x509_login = {"authMechanism": "MONGODB-X509"}
    with Client(own.uri, username="boss", password="x") as boss:
        with connect(own, certificates, key, **x509_login) as alice, pytest.raises(OperationFailure) as unknown:
            alice["db"]["t"].find_one()
        assert unknown.value.code == 11
        with pytest.raises(OperationFailure) as with_password:
            boss["$external"].command("createUser", subject, pwd="x", roles=[])
        assert with_password.value.code == 2
        boss["$external"].command("createUser", subject, roles=[{"role": "readWrite", "db": "db"}])
        for user in (None, subject):
            with connect(own, certificates, key, username=user, **x509_login) as alice:
                alice["db"]["t"].insert_one({})
                who = alice.admin.command("connectionStatus")["authInfo"]["authenticatedUsers"]
                assert who == [{"user": subject, "db": "$external"}]
                with pytest.raises(OperationFailure) as elsewhere:
                    alice["other"]["t"].find_one()
                assert elsewhere.value.code == 13
        mechanisms = boss.admin.command("serverStatus")["security"]["authentication"]["mechanisms"]
        assert mechanisms["MONGODB-X509"]["speculativeAuthenticate"]["successful"] >= 2
    for wrong in (
        {"username": "CN=bob", "tlsCertificateKeyFile": str(key), "tls": True, "tlsCAFile": str(certificates.ca)},
        {"tls": True, "tlsCAFile": str(certificates.ca)},
        {},
    ):
        with Client(own.uri, **x509_login, **wrong) as client, pytest.raises(OperationFailure) as failed:
            client["db"]["t"].find_one()
        assert (failed.value.code, failed.value.details["errmsg"]) == (18, "Authentication failed.")  # type: ignore[index]


def test_subjects_are_written_as_rfc_2253_has_them(certificates: Certificates, both: ServerProcess) -> None:
    from cryptography.x509.oid import NameOID

    key = certificates.make_client(
        (NameOID.DOMAIN_COMPONENT, "org"),
        (NameOID.ORGANIZATIONAL_UNIT_NAME, ' a+b;c"d\\ '),
        (NameOID.TITLE, "Dr"),
        (NameOID.COMMON_NAME, "#Zoë <z>"),
        name="odd.pem",
    )
    with (
        connect(both, certificates, key, authMechanism="MONGODB-X509") as client,
        pytest.raises(OperationFailure) as unknown,
    ):
        client.admin.command("ping")
    expected = 'CN=\\#Zoë \\<z\\>,2.5.4.12=Dr,OU=\\ a\\+b\\;c\\"d\\\\\\ ,DC=org'
    assert expected in str(unknown.value)


def test_revoked_certificates(certificates: Certificates, start_server: Callable[..., ServerProcess]) -> None:
    key = certificates.make_client(name="revoked.pem")
    good, _ = certificates.make_alice()
    revocations = certificates.revoke(key)
    own = start_server(*options(certificates, "requireTLS", "--tlsCRLFile", str(revocations)))
    assert refused(own, tls=True, tlsCAFile=str(certificates.ca), tlsCertificateKeyFile=str(key))
    with connect(own, certificates, good) as client:
        assert client.admin.command("ping")["ok"] == 1


def serial_of(port: int, certificates: Certificates) -> int:
    with raw_tls(port, certificates) as encrypted:
        der = encrypted.getpeercert(binary_form=True)
    assert der is not None
    return x509.load_der_x509_certificate(der).serial_number


def test_certificates_change_without_a_restart(
    certificates: Certificates, start_server: Callable[..., ServerProcess]
) -> None:
    key = certificates.make_server("rotated.pem")
    own = start_server(*options(certificates, "allowTLS", WITHOUT, key=key))
    first = serial_of(own.port, certificates)
    with connect(own, certificates) as client:
        client["db"]["t"].insert_one({"_id": 1})
        certificates.make_server("rotated.pem")
        assert serial_of(own.port, certificates) == first
        client.admin.command("rotateCertificates", 1)
        second = serial_of(own.port, certificates)
        assert second != first
        # Those who are connected stay so.
        assert client["db"]["t"].find_one() == {"_id": 1}
        key.write_text("nothing")
        with pytest.raises(OperationFailure) as unusable:
            client.admin.command("rotateCertificates", 1)
        assert unusable.value.code == 140
        assert serial_of(own.port, certificates) == second
        certificates.make_server("rotated.pem")
        own.signal(SIGHUP)
        while serial_of(own.port, certificates) == second:
            client.admin.command("ping")


def test_the_mode_becomes_stricter_only(certificates: Certificates, start_server: Callable[..., ServerProcess]) -> None:
    own = start_server(*options(certificates, "allowTLS", WITHOUT))
    with connect(own, certificates) as client:

        def change(mode: str) -> int:
            try:
                client.admin.command("setParameter", 1, tlsMode=mode)
            except OperationFailure as error:
                return error.code or 0
            return 0

        assert change("requireTLS") == 2
        assert change("preferTLS") == 0
        assert not refused(own)
        assert change("requireTLS") == 0
        assert change("preferTLS") == 2
        assert refused(own)
        assert client.admin.command("ping")["ok"] == 1


def test_who_says_nothing_is_dropped(certificates: Certificates, start_server: Callable[..., ServerProcess]) -> None:
    own = start_server(
        *options(certificates, "preferTLS", WITHOUT), "--setParameter", "bucketdHandshakeTimeoutMillis=200"
    )
    for said in (b"", b"\x16", b"\x16\x03\x01", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 20):
        with socket.create_connection(("127.0.0.1", own.port), timeout=20) as silent:
            silent.send(said)
            with suppress(ConnectionResetError):
                assert silent.recv(1) == b""


def test_expiry_is_read_as_it_was_written(certificates: Certificates) -> None:
    from bucketd.server.certificates import first_certificate

    pem = certificates.server.read_text()
    expires = x509.load_pem_x509_certificate(pem.encode()).not_valid_after_utc
    assert datetime.fromtimestamp(first_certificate(pem).expires_ms / 1000, UTC) == expires
    with pytest.raises(ValueError, match="no certificate"):
        first_certificate("nothing")
