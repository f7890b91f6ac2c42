"""How a conversation begins: hello and its older names, ping, and who is who on this connection."""

from collections.abc import Mapping
from typing import Any, Final

from bson import Binary, DatetimeMS, Int64, ObjectId
from bson.binary import UUID_SUBTYPE

from ...common.errors import (
    ClientMetadataAppNameTooLarge,
    ClientMetadataCannotBeMutated,
    ClientMetadataDocumentTooLarge,
    ClientMetadataMissingField,
    Location,
    ShutdownInProgress,
    TypeMismatch,
)
from ...common.limits import (
    DOCUMENT_BYTES_MAX,
    MAX_WIRE_VERSION,
    MESSAGE_BYTES_MAX,
    MIN_WIRE_VERSION,
    WRITE_BATCH_MAX,
)
from ...common.values import Document, encode, type_name
from ...protocol.compression import negotiate
from ..context import Client, Context, Request
from ..topology import Topology
from .arguments import Fields
from .base import Command

_METADATA_BYTES_MAX: Final = 512
_APP_NAME_BYTES_MAX: Final = 128


class Hello(Command):
    """`hello`: what this server is and can, and news of it for those who watch."""

    name = "hello"
    aliases = ("isMaster", "ismaster")
    summary = "Tells what this server is and what it can."
    needs_login = False
    in_api_version_1 = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer at once, or, to who sends `topologyVersion`, when it has changed or `maxAwaitTimeMS` is over."""
        services, client = context.services, context.client
        body = request.body
        _note_metadata(client, body.get("client"))
        if "client" in body and not services.parameters["quiet"]:
            services.logger.info(
                "client metadata",
                component="NETWORK",
                id=51800,
                ctx=f"conn{client.id}",
                remote=client.peer,
                doc=client.metadata,
            )
        _negotiate_compression(client, body.get("compression"), services.config.compressors)
        watched = _watched_version(body, services.topology)
        if watched is not None:
            counters = services.counters
            counters.awaiting_topology_change += 1
            counters.exhaust_hello += request.exhaust_allowed
            try:
                await request.operation.wait(services.topology.change(), watched / 1000)
            finally:
                counters.awaiting_topology_change -= 1
                counters.exhaust_hello -= request.exhaust_allowed
        if services.topology.stopping:
            raise ShutdownInProgress(
                "The server is in quiesce mode and will shut down",
                extra={"topologyVersion": services.topology.version, "remainingQuiesceTimeMillis": Int64(0)},
            )
        request.more_to_come = "topologyVersion" in body and "maxAwaitTimeMS" in body
        client.said_hello = True
        return {
            **_legacy_fields(request),
            "topologyVersion": services.topology.version,
            "maxBsonObjectSize": DOCUMENT_BYTES_MAX,
            "maxMessageSizeBytes": MESSAGE_BYTES_MAX,
            "maxWriteBatchSize": WRITE_BATCH_MAX,
            "localTime": DatetimeMS(services.clock.now_ms()),
            "logicalSessionTimeoutMinutes": services.parameters["localLogicalSessionTimeoutMinutes"],
            "connectionId": client.id,
            "minWireVersion": MIN_WIRE_VERSION,
            "maxWireVersion": MAX_WIRE_VERSION,
            "readOnly": False,
            **({"compression": list(client.compressors)} if "compression" in body and client.compressors else {}),
            **_login_fields(context, body),
        }


class Ping(Command):
    """`ping`: is anybody there?"""

    name = "ping"
    summary = "Answers, and does nothing else."
    needs_login = False
    in_api_version_1 = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{}`."""
        Fields(request, known=())
        return {}


class WhatsMyUri(Command):
    """`whatsmyuri`: the address that the server sees the client at."""

    name = "whatsmyuri"
    summary = "The client's address and port."
    needs_login = False

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{you: "address:port"}`."""
        return {"you": context.client.peer}


class ConnectionStatus(Command):
    """`connectionStatus`: who is logged in here, and what they may do."""

    name = "connectionStatus"
    summary = "Users logged in on this connection, with their roles."
    needs_login = False

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{authInfo, uuid}`."""
        fields = Fields(request, known=("showPrivileges",))
        show_privileges = fields.take_bool("showPrivileges")
        client = context.client
        information: Document = {"authenticatedUsers": [], "authenticatedUserRoles": []}
        if show_privileges:
            information["authenticatedUserPrivileges"] = []
        store = context.services.users
        document = None if client.user is None or store is None else store.user(*client.user)
        if client.user is not None and document is not None:
            # Users are loaded with the first login.
            from ..users import RoleName

            roles = [RoleName.from_document(row) for row in document["roles"]]
            information["authenticatedUsers"] = [{"user": client.user[0], "db": client.user[1]}]
            information["authenticatedUserRoles"] = [role.to_document() for role in store.closure(roles)]
            if show_privileges:
                information["authenticatedUserPrivileges"] = [
                    privilege.to_document() for privilege in store.privileges(roles).privileges
                ]
        return {"authInfo": information, "uuid": Binary(client.uuid, UUID_SUBTYPE)}


def _legacy_fields(request: Request) -> Document:
    if request.name == "hello":
        return {"isWritablePrimary": True}
    if request.body.get("helloOk") is True:
        return {"helloOk": True, "ismaster": True}
    return {"ismaster": True}


def _login_fields(context: Context, body: Document) -> Document:
    """What of a login can be settled in advance."""
    speculative = body.get("speculativeAuthenticate")
    found: Document = {}
    if "saslSupportedMechs" not in body and speculative is None:
        return found
    # Users and their cryptography are loaded with the first client that asks for them.
    from .authentication import mechanisms_of, speculate

    if "saslSupportedMechs" in body:
        mechanisms = mechanisms_of(context.services, body["saslSupportedMechs"])
        if mechanisms is not None:
            found["saslSupportedMechs"] = mechanisms
    if speculative is not None:
        reply = speculate(context.services, context.client, speculative)
        if reply is not None:
            found["speculativeAuthenticate"] = reply
    return found


def _watched_version(body: Document, topology: Topology) -> int | None:
    """How many milliseconds to wait for a change; None where the answer is due at once."""
    version, wait_ms = body.get("topologyVersion"), body.get("maxAwaitTimeMS")
    if version is None and wait_ms is None:
        return None
    if wait_ms is None:
        raise Location(31368, "A request with a 'topologyVersion' must include 'maxAwaitTimeMS'")
    if version is None:
        raise Location(51759, "A request with 'maxAwaitTimeMS' must include a 'topologyVersion'")
    fields = Fields(version if isinstance(version, dict) else {}, "hello.topologyVersion")
    if not isinstance(version, dict):
        raise TypeMismatch(
            f"BSON field 'hello.topologyVersion' is the wrong type '{type_name(version)}', expected type 'object'"
        )
    process_id = fields.take_any("processId")
    if process_id is None:
        raise fields.missing("processId")
    if not isinstance(process_id, ObjectId):
        raise fields.wrong_type("processId", process_id, "type 'objectId'")
    counter = fields.take_long("counter", default=None)
    if counter is None:
        raise fields.missing("counter")
    fields.finish()
    if counter < 0:
        raise Location(31372, "topologyVersion must have a non-negative counter")
    limit = Fields(body, "hello").take_whole_number("maxAwaitTimeMS")
    if limit < 0:
        raise Location(31373, "maxAwaitTimeMS must be a non-negative integer")
    if process_id != topology.process_id or counter < topology.counter:
        return None
    if counter > topology.counter:
        raise Location(
            31382,
            f"Received a topology version with counter: {counter} which is greater than the server topology version "
            f"counter: {topology.counter}",
        )
    return limit


def _negotiate_compression(client: Client, offered: Any, ours: tuple[str, ...]) -> None:
    if isinstance(offered, list):
        client.compressors = negotiate(offered, ours)


def _note_metadata(client: Client, metadata: Any) -> None:
    """Remember who the client says it is, at its first hello."""
    if metadata is None:
        return
    if client.metadata is not None:
        raise ClientMetadataCannotBeMutated("The client metadata document may only be sent in the first hello")
    if not isinstance(metadata, dict):
        raise TypeMismatch("The client metadata document must be a document")
    if len(encode(metadata)) > _METADATA_BYTES_MAX:
        raise ClientMetadataDocumentTooLarge(
            f"The client metadata document must be less then or equal to {_METADATA_BYTES_MAX} bytes"
        )
    application = metadata.get("application")
    name = ""
    if application is not None:
        if not isinstance(application, dict):
            raise TypeMismatch(
                "The 'application' field is required to be a BSON document in the client metadata document"
            )
        name = application.get("name", "")
        if not isinstance(name, str):
            raise TypeMismatch("The 'application.name' field must be a string in the client metadata document")
        if len(name.encode()) > _APP_NAME_BYTES_MAX:
            raise ClientMetadataAppNameTooLarge(
                f"The 'application.name' field must be less then or equal to {_APP_NAME_BYTES_MAX} bytes"
            )
    driver = _required(metadata, "driver")
    for field in ("name", "version"):
        _required_text(driver, "driver", field)
    _required_text(_required(metadata, "os"), "os", "type")
    client.metadata = metadata
    client.app_name = name


def _required(metadata: Document, name: str) -> Document:
    value = metadata.get(name)
    if value is None:
        raise ClientMetadataMissingField(f"Missing required field '{name}' in the client metadata document")
    if not isinstance(value, dict):
        raise TypeMismatch(f"The '{name}' field is required to be a BSON document in the client metadata document")
    return value


def _required_text(document: Document, path: str, name: str) -> None:
    value = document.get(name)
    if value is None:
        raise ClientMetadataMissingField(f"Missing required field '{path}.{name}' in the client metadata document")
    if not isinstance(value, str):
        raise TypeMismatch(f"The '{path}.{name}' field must be a string in the client metadata document")


_HELLO: Final = Hello()
_PING: Final = Ping()

FIRST_COMMANDS: Final[Mapping[str, Command]] = {
    **dict.fromkeys((Hello.name, *Hello.aliases), _HELLO),
    Ping.name: _PING,
}
"""What can be answered before the other commands are loaded."""
