"""What logins were tried, from where they may come, and how long those wait who failed."""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from ..common.errors import AuthenticationFailed
from ..common.values import Document
from .context import Client, Services
from .operations import Operation
from .restrictions import allows
from .users import RoleName, UserStore

_ADDRESSES_MAX: Final = 10_000
_FORGOTTEN_SECONDS: Final = 60.0
_DELAY_MS_MAX: Final = 5_000
EXTERNAL: Final = "$external"


@dataclass(slots=True)
class Tried:
    """Logins of one mechanism, as serverStatus tells them."""

    received: int = 0
    successful: int = 0
    speculative_received: int = 0
    speculative_successful: int = 0


@dataclass(slots=True)
class Logins:
    """What the server remembers of logins."""

    by_mechanism: dict[str, Tried] = field(
        default_factory=lambda: {name: Tried() for name in ("MONGODB-X509", "SCRAM-SHA-1", "SCRAM-SHA-256")}
    )
    mechanisms_asked: int = 0
    """How many clients asked for somebody's mechanisms in their hello."""
    failed: int = 0
    delayed_ms: int = 0
    _failures: OrderedDict[str, tuple[int, float]] = field(default_factory=OrderedDict)
    """By address: failures one after another, and when the last one was (seconds of the loop)."""

    def delay_ms(self, address: str, base_ms: int) -> int:
        """Note a failure from the address; returns how long its answer waits: twice as long each time, up to 5 s."""
        now = asyncio.get_running_loop().time()
        count, last = self._failures.pop(address, (0, now))
        count = 1 if now - last > _FORGOTTEN_SECONDS else count + 1
        self._failures[address] = (count, now)
        if len(self._failures) > _ADDRESSES_MAX:
            self._failures.popitem(last=False)
        return min(base_ms << min(count - 1, 16), _DELAY_MS_MAX)

    def forgive(self, address: str) -> None:
        """Somebody at the address has logged in."""
        self._failures.pop(address, None)


async def fail(services: Services, client: Client, operation: Operation, user: str, database: str, reason: str) -> None:
    """Log a login that failed, and hold its answer back for a while; the caller then raises.

    The wait holds up nobody else, and ends at once where the client goes away or the server stops.
    """
    logins = services.logins
    logins.failed += 1
    address = client.peer.rpartition(":")[0]
    delay_ms = logins.delay_ms(address, services.parameters["authFailedDelayMs"])
    services.logger.info(
        "Authentication failed",
        component="ACCESS",
        id=20249,
        ctx=f"conn{client.id}",
        user=user,
        db=database,
        remote=client.peer,
        delayMillis=delay_ms,
        error=f"AuthenticationFailed: {reason}",
    )
    if delay_ms:
        logins.delayed_ms += delay_ms
        await operation.wait(asyncio.get_running_loop().create_future(), delay_ms / 1000)


def welcome(services: Services, client: Client, mechanism: str, user: str, database: str, *, speculative: bool) -> None:
    """The user has proven who they are: from here on the connection is theirs.

    Raises:
        AuthenticationFailed: the user, or one of their roles, may not log in from there.
    """
    store: UserStore = services.users
    document = store.user(user, database)
    if document is None or not may_enter(store, document, client):
        raise AuthenticationFailed("Authentication failed.")
    client.user = (user, database)
    services.logins.forgive(client.peer.rpartition(":")[0])
    tried = services.logins.by_mechanism[mechanism]
    tried.successful += 1
    tried.speculative_successful += speculative
    if not services.parameters["quiet"]:
        services.logger.info(
            "Successfully authenticated",
            component="ACCESS",
            id=5286306,
            ctx=f"conn{client.id}",
            client=client.peer,
            isSpeculative=speculative,
            mechanism=mechanism,
            user=user,
            db=database,
        )


def may_enter(store: UserStore, user: Document, client: Client) -> bool:
    """Whether the restrictions of the user and of every role of theirs are met by the connection."""
    if not allows(user.get("authenticationRestrictions", ()), client.peer, client.local):
        return False
    for name in store.closure(RoleName.from_document(row) for row in user["roles"]):
        role = store.role(name)
        if role is not None and not allows(role.get("authenticationRestrictions", ()), client.peer, client.local):
            return False
    return True
