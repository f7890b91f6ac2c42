"""Certificates of a test's own authority, made when they are needed."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

KEY_PASSWORD = "key pass wörd"


@dataclass
class Certificates:
    """PEM files in a folder."""

    folder: Path

    def __post_init__(self) -> None:
        self._authority = trustme.CA()
        self._key = serialization.load_pem_private_key(self._authority.private_key_pem.bytes(), None)
        self.ca = self.folder / "ca.pem"
        self.ca.write_bytes(self._authority.cert_pem.bytes())
        self.server = self.make_server()
        made = x509.load_pem_x509_certificate(self.server.read_bytes())
        self.server_subject = made.subject.rfc4514_string()

    def make_server(self, name: str = "server.pem", password: str | None = None) -> Path:
        """A server's certificate for 127.0.0.1 and localhost, with its key."""
        made = self._authority.issue_cert(
            "127.0.0.1", "localhost", common_name="bucketd server", organization_name="db"
        )
        path = self.folder / name
        key = made.private_key_pem.bytes()
        if password is not None:
            key = serialization.load_pem_private_key(key, None).private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.BestAvailableEncryption(password.encode()),
            )
        path.write_bytes(key + b"".join(blob.bytes() for blob in made.cert_chain_pems))
        return path

    def make_client(self, *attributes: tuple[x509.ObjectIdentifier, str], name: str = "client.pem") -> Path:
        """A client's certificate with these attributes in its subject, in this order, with its key."""
        path = self.folder / name
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign(x509.Name([x509.NameAttribute(kind, text) for kind, text in attributes]), key)
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        return path

    def make_alice(self) -> tuple[Path, str]:
        """The certificate of a client, and its subject as RFC 2253 writes it."""
        path = self.make_client(
            (NameOID.COUNTRY_NAME, "CH"), (NameOID.ORGANIZATION_NAME, "Acme, Inc."), (NameOID.COMMON_NAME, "alice")
        )
        return path, "CN=alice,O=Acme\\, Inc.,C=CH"

    def revoke(self, pem: Path) -> Path:
        """A list of revocations with the certificate of the file."""
        certificate = x509.load_pem_x509_certificate(pem.read_bytes())
        now = datetime.now(UTC)
        revoked = x509.RevokedCertificateBuilder().serial_number(certificate.serial_number).revocation_date(now).build()
        authority = x509.load_pem_x509_certificate(self.ca.read_bytes())
        revocations = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(authority.subject)
            .last_update(now - timedelta(hours=1))
            .next_update(now + timedelta(days=1))
            .add_revoked_certificate(revoked)
            .sign(self._key, hashes.SHA256())  # type: ignore[arg-type]
        )
        path = self.folder / "crl.pem"
        path.write_bytes(revocations.public_bytes(serialization.Encoding.PEM))
        return path

    def _sign(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
        authority = x509.load_pem_x509_certificate(self.ca.read_bytes())
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(authority.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=30))
            .add_extension(x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
            .sign(self._key, hashes.SHA256())  # type: ignore[arg-type]
        )
