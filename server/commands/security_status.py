"""What serverStatus tells of logins and of TLS."""

from bson import DatetimeMS, Int64

from ...common.values import Document
from ..context import Services


def security(services: Services) -> Document:
    """`security`: logins by mechanism, and the certificate where there is one."""
    logins = services.logins
    told: Document = {
        "authentication": {
            "saslSupportedMechsReceived": Int64(logins.mechanisms_asked),
            "mechanisms": {
                name: {
                    "speculativeAuthenticate": {
                        "received": Int64(tried.speculative_received),
                        "successful": Int64(tried.speculative_successful),
                    },
                    "clusterAuthenticate": {"received": Int64(0), "successful": Int64(0)},
                    "authenticate": {"received": Int64(tried.received), "successful": Int64(tried.successful)},
                }
                for name, tried in logins.by_mechanism.items()
            },
        }
    }
    if services.tls is not None:
        certificate = services.tls.certificate
        told |= {
            "SSLServerSubjectName": certificate.subject,
            "SSLServerHasCertificateAuthority": True,
            "SSLServerCertificateExpirationDate": DatetimeMS(certificate.expires_ms),
        }
    return told


def transport_security(services: Services) -> Document:
    """`transportSecurity`: encrypted connections so far, by version of TLS."""
    versions = services.counters.tls_versions
    return {name: Int64(versions[name]) for name in ("1.0", "1.1", "1.2", "1.3", "unknown")}


def ingress(services: Services) -> Document:
    """`metrics.network`: handshakes of TLS."""
    counters = services.counters
    handshakes = counters.tls_versions.total()
    milliseconds = counters.tls_handshake_ms
    return {
        "totalIngressTLSConnections": Int64(handshakes),
        "totalIngressTLSHandshakeTimeMillis": Int64(int(milliseconds)),
        "averageTimeToCompletedTLSHandshakeMicros": Int64(int(milliseconds * 1000 / handshakes) if handshakes else 0),
    }
