"""The commands of a login: saslStart, saslContinue, logout, authenticate; and what hello does of it in advance."""

import base64
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
    UserNotFound,
)
from ...common.values import Document, is_string, type_name
from ..context import Client, Context, Request, Services
from ..logins import EXTERNAL, fail, welcome
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
_BY_CERTIFICATE: Final = "MONGODB-X509"


@dataclass(slots=True)
class _Login:
    """A login under way on a connection."""

    conversation: ScramConversation
    mechanism: Mechanism
    user: str
    database: str
    skip_empty_exchange: bool
    speculative: bool
    proven: bool = False


def _payload(value: Any) -> bytes:
    if isinstance(value, bytes | Binary):
        return bytes(value)
    if isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except ValueError:
            # No base64, or no ASCII.
            raise AuthenticationFailed("Authentication failed.") from None
    raise TypeMismatch("Wrong type for field (payload), expected binData or string")


def start(
    services: Services,
    client: Client,
    mechanism: Any,
    payload: bytes,
    database: str,
    options: Any,
    *,
    speculative: bool = False,
) -> Document:
    """Begin a login and answer the client's first message: the body of a saslStart.

    Raises:
        MechanismUnavailable: the mechanism, or the user's credentials for it, are not there.
        AuthenticationFailed: the message is malformed.
    """
    client.extra.pop(_KEY, None)
    known: Mechanism | None = next((name for name in MECHANISMS if name == mechanism), None)
    if known is None or known not in services.parameters.get("authenticationMechanisms"):
        raise MechanismUnavailable(f"Received authentication for mechanism {mechanism} which is not enabled")
    tried = services.logins.by_mechanism[known]
    tried.received += 1
    tried.speculative_received += speculative
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
    client.extra[_KEY] = _Login(conversation, known, user, database, skip, speculative)
    return {"conversationId": _CONVERSATION_ID, "done": False, "payload": reply}


def speculate(services: Services, client: Client, spec: Any) -> Document | None:
    """What hello answers to `speculativeAuthenticate`; None on any failure, after which clients start over."""
    if not isinstance(spec, dict):
        return None
    try:
        if "authenticate" in spec and spec.get("mechanism") == _BY_CERTIFICATE:
            return by_certificate(services, client, spec.get("user"), spec.get("db", EXTERNAL), speculative=True)
        database = spec.get("db")
        if "saslStart" not in spec or not isinstance(database, str):
            return None
        return start(
            services,
            client,
            spec.get("mechanism"),
            _payload(spec.get("payload")),
            database,
            spec.get("options"),
            speculative=True,
        )
    except MongoError:
        return None


def by_certificate(services: Services, client: Client, user: Any, database: str, *, speculative: bool) -> Document:
    """Log in as whom the client's certificate names: the reply to `authenticate`.

    Raises:
        ProtocolError: the database is not `$external`.
        UserNotFound: the certificate is good, and nobody of its name is known.
        AuthenticationFailed: there is no certificate, or it is somebody else's; the message says why.
    """
    tried = services.logins.by_mechanism[_BY_CERTIFICATE]
    tried.received += 1
    tried.speculative_received += speculative
    if client.tls is None:
        raise AuthenticationFailed("No SSLPeerInfo available")
    subject = client.tls.subject
    if not subject:
        raise AuthenticationFailed("No verified subject name available from client")
    if user is not None and user not in ("", subject):
        raise AuthenticationFailed("There is no x.509 client certificate matching the user.")
    if database != EXTERNAL:
        raise ProtocolError("X.509 authentication must always use the $external database.")
    if _BY_CERTIFICATE not in services.parameters.get("authenticationMechanisms"):
        raise AuthenticationFailed("x.509 authentication is disabled.")
    store: UserStore = services.users
    if store.user(subject, EXTERNAL) is None:
        raise UserNotFound(f'Could not find user "{subject}" for db "{EXTERNAL}"')
    welcome(services, client, _BY_CERTIFICATE, subject, EXTERNAL, speculative=speculative)
    return {"dbname": EXTERNAL, "user": subject}


def mechanisms_of(services: Services, name: Any) -> list[str] | None:
    """What hello answers to `saslSupportedMechs: "db.user"`; None for somebody unknown.

    Raises:
        TypeMismatch, BadValue: the value is no string, or has no dot.
    """
    if not is_string(name) and not isinstance(name, dict):
        raise TypeMismatch(
            f"BSON field 'hello.saslSupportedMechs' is the wrong type '{type_name(name)}', expected type 'string'"
        )
    services.logins.mechanisms_asked += 1
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
        done = login.proven or login.skip_empty_exchange
        try:
            reply = b"" if login.proven else login.conversation.final(payload)
            if done:
                del client.extra[_KEY]
                welcome(services, client, login.mechanism, login.user, login.database, speculative=login.speculative)
        except AuthenticationFailed:
            client.extra.pop(_KEY, None)
            reason = "a restriction is not met" if login.proven else "wrong user, password or address"
            await fail(services, client, request.operation, login.user, login.database, reason)
            raise
        login.proven = True
        return {"conversationId": _CONVERSATION_ID, "done": done, "payload": reply}


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
    """`authenticate`: login by a certificate."""

    name = "authenticate"
    summary = "Login by a certificate."
    needs_login = False
    in_api_version_1 = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{dbname, user}`; 18 without a certificate, 11 for one of an unknown user."""
        client, services = context.client, context.services
        mechanism = request.body.get("mechanism")
        user = request.body.get("user")
        if mechanism != _BY_CERTIFICATE:
            # Passwords are proven by saslStart.
            raise AuthenticationFailed("Authentication failed.")
        try:
            return by_certificate(services, client, user, request.database, speculative=False)
        except (AuthenticationFailed, UserNotFound) as error:
            name = client.tls.subject if client.tls is not None else str(user)
            await fail(services, client, request.operation, name, request.database, error.message)
            if isinstance(error, UserNotFound):
                raise
            raise AuthenticationFailed("Authentication failed.") from error
