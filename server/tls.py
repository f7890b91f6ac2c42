"""TLS: which connections are encrypted, with which certificate, and whom a client's certificate speaks for."""

import contextlib
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ..common.config import Config, ConfigError
from ..common.errors import BadValue
from .certificates import Certificate, first_certificate, read_certificate
from .context import Services

_STRICTER: Final = {"allowTLS": "preferTLS", "preferTLS": "requireTLS"}
"""The only ways in which the mode of a running server changes."""

_VERSIONS: Final = {"TLSv1": "1.0", "TLSv1.1": "1.1", "TLSv1.2": "1.2", "TLSv1.3": "1.3"}


@dataclass(frozen=True, slots=True)
class TlsPeer:
    """What is known of the client of an encrypted connection."""

    version: str
    """`1.2`, `1.3`, or `unknown`."""
    cipher: str
    subject: str
    """The name in the certificate that it showed, which was verified; empty where it showed none."""


class Tls:
    """The mode, and the certificates as they were last read."""

    def __init__(self, config: Config) -> None:
        """Read the certificates.

        Raises:
            ConfigError: a file cannot be read or used, or one is missing.
        """
        self._config = config
        self.mode = config.tls_mode
        if not config.tls_certificate_key_file:
            raise ConfigError("need tlsCertificateKeyFile when TLS is enabled")
        if not config.tls_ca_file:
            raise ConfigError("The use of TLS without specifying a chain of trust is not supported: need tlsCAFile")
        self.certificate: Certificate
        self.context: ssl.SSLContext
        self.reload()

    @property
    def required(self) -> bool:
        """Whether connections without TLS are refused."""
        return self.mode == "requireTLS"

    def reload(self) -> None:
        """Read the certificates again; connections that begin from now on use them.

        Raises:
            ConfigError: they cannot be used; those of before stay.
        """
        context = _context(self._config)
        try:
            certificate = first_certificate(Path(self._config.tls_certificate_key_file).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(f"cannot read {self._config.tls_certificate_key_file}: {error}") from error
        self.context, self.certificate = context, certificate

    def check_mode(self, mode: Any) -> None:
        """Refuse a mode that a running server does not change to: only the next stricter one will do.

        Raises:
            BadValue: it is another.
        """
        if mode != self.mode and mode != _STRICTER.get(self.mode):
            raise BadValue(f"Illegal state transition for tlsMode, attempt to change from {self.mode} to {mode}")


def peer_of(connection: ssl.SSLObject) -> TlsPeer:
    """Who is at the other end of a connection whose handshake is done."""
    cipher = connection.cipher()
    subject = ""
    if connection.context.verify_mode != ssl.CERT_NONE and (der := connection.getpeercert(binary_form=True)):
        # OpenSSL has verified it; a name that cannot be written down is nobody's.
        with contextlib.suppress(ValueError):
            subject = read_certificate(der).subject
    return TlsPeer(_VERSIONS.get(connection.version() or "", "unknown"), cipher[0] if cipher else "", subject)


def _context(config: Config) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    disabled = {name.upper() for name in config.tls_disabled_protocols}
    # Versions before 1.2 are broken, and stay away whether or not they are disabled by name.
    if disabled >= {"TLS1_2", "TLS1_3"}:
        raise ConfigError("--tlsDisabledProtocols leaves no version of TLS")
    context.minimum_version = ssl.TLSVersion.TLSv1_3 if "TLS1_2" in disabled else ssl.TLSVersion.TLSv1_2
    if "TLS1_3" in disabled:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    password = config.tls_certificate_key_password
    try:
        # A key with a password and none given must not ask at the terminal.
        context.load_cert_chain(config.tls_certificate_key_file, password=lambda: password)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot use the certificate of {config.tls_certificate_key_file}: {error}") from error
    try:
        context.load_verify_locations(config.tls_ca_file)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot use the authorities of {config.tls_ca_file}: {error}") from error
    optional = config.tls_allow_without_certificates
    context.verify_mode = ssl.CERT_OPTIONAL if optional else ssl.CERT_REQUIRED
    if config.tls_crl_file:
        try:
            context.load_verify_locations(config.tls_crl_file)
        except (OSError, ValueError) as error:
            raise ConfigError(f"cannot use the revocations of {config.tls_crl_file}: {error}") from error
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    return context


def reload_certificates(services: Services) -> None:
    """Read the certificates again, as `rotateCertificates` and SIGHUP ask for; of no effect without TLS.

    Raises:
        ConfigError: they cannot be used; those of before stay.
    """
    tls = services.tls
    if tls is None:
        return
    try:
        tls.reload()
    except ConfigError as error:
        services.logger.error("Certificates were not rotated", component="NETWORK", id=4913401, reason=str(error))
        raise
    services.logger.info(
        "Successfully rotated X509 certificates",
        component="NETWORK",
        id=4913400,
        subject=tls.certificate.subject,
        expires=tls.certificate.expires_ms,
    )
