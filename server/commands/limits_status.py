"""What serverStatus tells of limits: who was refused, cut off or made to wait, and why."""

from bson import Int64

from ...common.values import Document
from ..context import Services


def limits(services: Services) -> Document:
    """`bucketd.limits`: a counter for each limit."""
    counters = services.counters
    told = {
        "connectionsRejected": counters.connections_rejected,
        "handshakesTimedOut": counters.dropped_handshake,
        "tlsHandshakesFailed": counters.tls_failed,
        "messagesTimedOut": counters.dropped_unfinished,
        "unauthenticatedIdleClosed": counters.dropped_strangers,
        "unauthenticatedOversized": counters.dropped_oversized,
        "unauthenticatedDelayed": counters.strangers_delayed,
        "writesTimedOut": counters.dropped_deaf,
        "readsPaused": counters.reads_paused,
        "requestsShedForMemory": services.admission.shed,
        "cursorsRefused": services.cursors.counters.refused,
        "sessionsRefused": counters.sessions_refused,
        "loginsFailed": services.logins.failed,
        "loginsDelayedMillis": services.logins.delayed_ms,
    }
    return {name: Int64(value) for name, value in told.items()}


def establishment(services: Services) -> Document:
    """Of `connections`: what became of those that came too fast."""
    gate = services.establishment
    if gate is None:
        return {}
    return {
        "queuedForEstablishment": Int64(gate.queued),
        "establishmentRateLimit": {
            "rejected": Int64(gate.rejected),
            "exempted": Int64(gate.exempted),
            "interruptedDueToClientDisconnect": Int64(gate.interrupted),
        },
    }


def queues(services: Services) -> Document:
    """`queues`: connections that wait for their turn."""
    gate = services.establishment
    return {} if gate is None else {"ingressSessionEstablishment": gate.statistics(queues=True)}
