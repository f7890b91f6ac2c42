"""Which requests are let in: a rate if one is set, and none but the indispensable while memory is short.

What is turned away has done nothing, and says so with labels by which drivers wait a little and try again.
"""

import asyncio
from pathlib import Path
from typing import Final

from ..common.errors import IngressRequestRateLimitExceeded
from .context import Client, Services
from .parameters import Parameters
from .rates import Admission

_LABELS: Final = ("SystemOverloadedError", "RetryableError", "NoWritesPerformed")

_SHARE_OF_MEMORY: Final = 0.9
"""Of what the machine, or the control group, gives."""

_INDISPENSABLE: Final = frozenset(
    {
        "abortTransaction",
        "authenticate",
        "buildInfo",
        "connectionStatus",
        "currentOp",
        "endSessions",
        "getLog",
        "getMore",
        "getParameter",
        "hello",
        "killAllSessions",
        "killCursors",
        "killOp",
        "killSessions",
        "listCommands",
        "logout",
        "ping",
        "saslContinue",
        "saslStart",
        "serverStatus",
        "setParameter",
        "shutdown",
        "whatsmyuri",
    }
)
"""What helps to see, to steer and to finish, and so is let in while memory is short."""


class RequestAdmission:
    """The gate that every request passes."""

    def __init__(self, parameters: Parameters, memory_bytes: int) -> None:
        self.rate = Admission(asyncio.get_running_loop().time)
        self.limited = False
        """Whether there is anything to check at all; else a request costs one look at this."""
        self.shed = 0
        self.short_of_memory = False
        self._parameters = parameters
        self._memory_bytes = memory_bytes
        for name in ("ingressRequestAdmissionRatePerSec", "ingressRequestAdmissionBurstCapacitySecs"):
            parameters.on_change(name, lambda _: self._set_rate())
        parameters.on_change("ingressRequestRateLimiterEnabled", lambda _: self._set_limited())
        self._set_rate()
        self._set_limited()

    def look_at_memory(self) -> None:
        """Compare what the process holds with what it may; called now and then."""
        limit_bytes = self._parameters["bucketdMemoryLimitMiB"] << 20 or int(self._memory_bytes * _SHARE_OF_MEMORY)
        self.short_of_memory = anonymous_bytes() > limit_bytes
        self._set_limited()

    def check(self, services: Services, client: Client, name: str) -> None:
        """Let the request in.

        Raises:
            IngressRequestRateLimitExceeded: not now.
        """
        if self._parameters["ingressRequestRateLimiterEnabled"]:
            # Before the login there are other limits; a login must not fail for what those who are in do.
            if services.config.auth and client.user is None:
                self.rate.exempted += 1
            elif not self.rate.admit():
                raise IngressRequestRateLimitExceeded(
                    "Rate limiter 'ingressRequestRateLimiter' rate exceeded", labels=_LABELS
                )
        if self.short_of_memory and name not in _INDISPENSABLE:
            self.shed += 1
            raise IngressRequestRateLimitExceeded("The server is short of memory, try again later", labels=_LABELS)

    def _set_rate(self) -> None:
        self.rate.set(
            self._parameters["ingressRequestAdmissionRatePerSec"],
            self._parameters["ingressRequestAdmissionBurstCapacitySecs"],
        )

    def _set_limited(self) -> None:
        self.limited = self.short_of_memory or bool(self._parameters["ingressRequestRateLimiterEnabled"])


def anonymous_bytes() -> int:
    """Memory of the process that only it holds: pages of the store, which the system takes back at will, do not count."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return 0
    for line in status.splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0
