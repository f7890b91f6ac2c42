"""The commands of a login: saslStart, saslContinue, logout, authenticate; and what hello does of it in advance."""

import base64
import binascii
from dataclasses import dataclass
from typing import Any, Final

from bson import Binary

from ...common.errors import (
    AuthenticationFailed,
    BadValue,
    MechanismUnavailable,
    MongoError,
    ProtocolError,
    TypeMismatch,
)
from ...common.values import Document, is_string, type_name
from ..context import Client, Context, Request, Services
from ..scram import (
    MECHANISMS,
    Mechanism,
    ScramConversation,
    ScramCredentials,
    credentials_of_nobody,
    user_of_first_message,
)
from ..users import UserStore
from .arguments import Fields
from .base import Command

_CONVERSATION_ID: Final = 1
_KEY: Final = "login"


@dataclass(slots=True)
class _Login:
    """A login under way on a connection."""

    conversation: ScramConversation
    user: str
    database: str
    skip_empty_exchange: bool
    proven: bool = False


def _payload(value: Any) -> bytes:
    if isinstance(value, bytes | Binary):
        return bytes(value)
    if isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except binascii.Error:
            raise AuthenticationFailed("Authentication failed.") from None
    raise TypeMismatch("Wrong type for field (payload), expected binData or string")


def start(services: Services, client: Client, mechanism: Any, payload: bytes, database: str, options: Any) -> Document:
    """Begin a login and answer the client's first message: the body of a saslStart.

    Raises:
        MechanismUnavailable: the mechanism, or the user's credentials for it, are not there.
        AuthenticationFailed: the message is malformed.
    """
    client.extra.pop(_KEY, None)
    known: Mechanism | None = next((name for name in MECHANISMS if name == mechanism), None)
    if known is None or known not in services.parameters.get("authenticationMechanisms"):
        raise MechanismUnavailable(f"Received authentication for mechanism {mechanism} which is not enabled")
    user = user_of_first_message(payload)
    store: UserStore = services.users
    document = store.user(user, database)
    if document is None:
        credentials = credentials_of_nobody(known, user, database)
    elif known in document["credentials"]:
        credentials = ScramCredentials.from_document(document["credentials"][known])
    else:
        raise MechanismUnavailable(
            f"Unable to use {known} based authentication for user without any {known} credentials registered"
        )
    conversation = ScramConversation(known, credentials)
    reply = conversation.first(payload)
    skip = isinstance(options, dict) and bool(options.get("skipEmptyExchange"))
    client.extra[_KEY] = _Login(conversation, user, database, skip)
    return {"conversationId": _CONVERSATION_ID, "done": False, "payload": reply}


def speculate(services: Services, client: Client, spec: Any) -> Document | None:
    """What hello answers to `speculativeAuthenticate`; None on any failure, after which clients start over."""
    if not isinstance(spec, dict) or "saslStart" not in spec:
        return None
    try:
        database = spec.get("db")
        if not isinstance(database, str):
            return None
        return start(
            services, client, spec.get("mechanism"), _payload(spec.get("payload")), database, spec.get("options")
        )
    except MongoError:
        return None


def mechanisms_of(services: Services, name: Any) -> list[str] | None:
    """What hello answers to `saslSupportedMechs: "db.user"`; None for somebody unknown.

    Raises:
        TypeMismatch, BadValue: the value is no string, or has no dot.
    """
    if not is_string(name) and not isinstance(name, dict):
        raise TypeMismatch(
            f"BSON field 'hello.saslSupportedMechs' is the wrong type '{type_name(name)}', expected type 'string'"
        )
    database, dot, user = name.partition(".") if is_string(name) else ("", "", "")
    if not dot:
        raise BadValue("UserName must contain a '.' separated database.user pair")
    store: UserStore = services.users
    document = store.user(user, database)
    if document is None:
        return None
    return [mechanism for mechanism in MECHANISMS if mechanism in document["credentials"]]


class SaslStart(Command):
    """`saslStart`: the first message of a login."""

    name = "saslStart"
    summary = "First step of a login."
    needs_login = False
    in_api_version_1 = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{conversationId, done, payload}`."""
        fields = Fields(request)
        mechanism = fields.take_string("mechanism")
        payload = _payload(fields.take_any("payload"))
        options = fields.take_document("options", default=None)
        fields.take_any("autoAuthorize")
        fields.take_any("db")
        fields.finish()
        return start(context.services, context.client, mechanism, payload, request.database, options)


class SaslContinue(Command):
    """`saslContinue`: the proof, and the empty exchange after it."""

    name = "saslContinue"
    summary = "Next step of a login."
    needs_login = False
    in_api_version_1 = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{conversationId, done, payload}`; 18 where the proof is wrong, 17 out of turn."""
        fields = Fields(request)
        number = fields.take_whole_number("conversationId")
        payload = _payload(fields.take_any("payload"))
        fields.finish()
        client, services = context.client, context.services
        login: _Login | None = client.extra.get(_KEY)
        if login is None:
            raise ProtocolError("No SASL session state found")
        if number != _CONVERSATION_ID:
            raise ProtocolError("sasl: Mismatched conversation id")
        if login.proven:
            del client.extra[_KEY]
            client.user = (login.user, login.database)
            return {"conversationId": _CONVERSATION_ID, "done": True, "payload": b""}
        try:
            reply = login.conversation.final(payload)
        except AuthenticationFailed:
            del client.extra[_KEY]
            services.logger.warning(
                "Authentication failed", user=login.user, db=login.database, remote=client.peer, reason="wrong proof"
            )
            raise
        if login.skip_empty_exchange:
            del client.extra[_KEY]
            client.user = (login.user, login.database)
        else:
            login.proven = True
        return {"conversationId": _CONVERSATION_ID, "done": login.skip_empty_exchange, "payload": reply}


class Logout(Command):
    """`logout`: the connection belongs to nobody again."""

    name = "logout"
    summary = "Ends a login."
    needs_login = False

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{}`."""
        client = context.client
        if client.user is not None and client.user[1] == request.database:
            client.user = None
        return {}


class Authenticate(Command):
    """`authenticate`: certificates, which this server does not take yet."""

    name = "authenticate"
    summary = "Login by a certificate."
    needs_login = False
    in_api_version_1 = True

    async def run(self, context: Context, request: Request) -> Document:
        """Refuse."""
        mechanism = request.body.get("mechanism")
        if mechanism in MECHANISMS:
            # Passwords are proven by saslStart.
            raise AuthenticationFailed("Authentication failed.")
        raise MechanismUnavailable(f"Received authentication for mechanism {mechanism} which is not enabled")
