"""Logical sessions: starting, refreshing, ending and killing them, and the ends of transactions."""

import hashlib
from collections.abc import Collection, Iterator
from typing import Final

from bson import Binary, DatetimeMS
from bson.binary import UUID_SUBTYPE

from ...common.errors import BadValue, CommandFailed, TypeMismatch
from ...common.values import Document, type_name
from ..context import Context, Request, Services
from ..generic_arguments import parse_lsid
from .arguments import Fields
from .base import Command

_SESSIONS_MAX: Final = 10_000


def session_document(lsid: bytes) -> Document:
    """A session's id as clients write it."""
    return {"id": Binary(lsid, UUID_SUBTYPE)}


def local_sessions(services: Services, users: Collection[tuple[str, str]] = ()) -> Iterator[Document]:
    """A document for each session that is known here, as `$listLocalSessions` shows them; of these users, if any."""
    for session in services.sessions:
        if users and session.user not in users:
            continue
        user = None if session.user is None else f"{session.user[0]}@{session.user[1]}"
        # Who logged in is told by a digest: that of the empty name where nobody did.
        digest = hashlib.sha256((user or "").encode()).digest()
        row: Document = {"_id": {**session_document(session.lsid), "uid": digest}}
        row["lastUse"] = DatetimeMS(session.used_ms)
        if user is not None:
            row["user"] = user
        yield row


def _asked_sessions(request: Request) -> list[bytes]:
    """The sessions in the array that is the command's value."""
    rows = Fields(request).take_list(request.name)
    if len(rows) > _SESSIONS_MAX:
        raise BadValue(f"Too many sessions: {len(rows)}, at most {_SESSIONS_MAX} are taken at a time")
    path = f"{request.name}.{request.name}"
    return [parse_lsid(f"{path}.{position}", row) for position, row in enumerate(rows) if row is not None]


def _rows(request: Request) -> list[tuple[str, Document]]:
    """The documents in the array that is the command's value, each with how messages call it."""
    rows: list[tuple[str, Document]] = []
    for position, row in enumerate(Fields(request).take_list(request.name)):
        path = f"{request.name}.{request.name}.{position}"
        if isinstance(row, dict):
            rows.append((path, row))
        elif row is not None:
            raise TypeMismatch(f"BSON field '{path}' is the wrong type '{type_name(row)}', expected type 'object'")
    return rows


class StartSession(Command):
    """`startSession`: a new session with an id of the server's making."""

    name = "startSession"
    summary = "Starts a logical session."

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{id, timeoutMinutes}`."""
        session = context.services.sessions.start(context.client.user)
        return {
            "id": session_document(session.lsid),
            "timeoutMinutes": context.services.parameters["localLogicalSessionTimeoutMinutes"],
        }


class RefreshSessions(Command):
    """`refreshSessions`: these sessions are still wanted."""

    name = "refreshSessions"
    summary = "Marks logical sessions as used."
    in_api_version_1 = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{}`."""
        for lsid in _asked_sessions(request):
            context.services.sessions.use(lsid, context.client.user)
        return {}


class EndSessions(Command):
    """`endSessions`: these sessions are no longer wanted; drivers send it when they close."""

    name = "endSessions"
    summary = "Ends logical sessions."
    needs_login = False
    in_api_version_1 = True
    # The shell adds `writeConcern: {w: 0}` to mean that it waits for no answer.
    writes = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{}`."""
        services, user = context.services, context.client.user
        for lsid in _asked_sessions(request):
            if not services.config.auth or services.sessions.owner(lsid) == user:
                services.sessions.end(lsid)
        return {}


class KillSessions(Command):
    """`killSessions`: interrupts what runs in these sessions, and closes their cursors; no ids mean all."""

    name = "killSessions"
    summary = "Kills logical sessions with their cursors and operations."

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{}`."""
        services, user = context.services, context.client.user
        lsids = _asked_sessions(request) or [session.lsid for session in services.sessions]
        if services.config.auth:
            # One's own; those of others are for killAllSessions.
            lsids = [lsid for lsid in lsids if services.sessions.owner(lsid) == user]
        _kill(context, request, lsids)
        return {}


class KillAllSessions(Command):
    """`killAllSessions`: the same for all sessions of some users, or of everybody."""

    name = "killAllSessions"
    summary = "Kills the logical sessions of users."

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{}`."""
        users: set[tuple[str, str]] = set()
        for path, row in _rows(request):
            fields = Fields(row, path)
            users.add((fields.take_string("user"), fields.take_string("db")))
            fields.finish()
        chosen = [session.lsid for session in context.services.sessions if not users or session.user in users]
        _kill(context, request, chosen)
        return {}


class KillAllSessionsByPattern(Command):
    """`killAllSessionsByPattern`: the same by patterns on session, user or role."""

    name = "killAllSessionsByPattern"
    summary = "Kills the logical sessions that match patterns."

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{}`."""
        sessions = list(context.services.sessions)
        rows = _rows(request)
        chosen = [] if rows else [session.lsid for session in sessions]
        for path, row in rows:
            fields = Fields(row, path)
            lsid = fields.take_document("lsid", default=None)
            users = fields.take_list("users", default=None)
            fields.take_list("roles", default=None)
            fields.take_any("uid")
            fields.finish()
            if lsid is not None:
                chosen.append(parse_lsid(f"{path}.lsid", lsid))
            elif users is not None:
                wanted = {(user.get("user"), user.get("db")) for user in users if isinstance(user, dict)}
                chosen += [session.lsid for session in sessions if session.user in wanted]
            else:
                chosen += [session.lsid for session in sessions]
        _kill(context, request, chosen)
        return {}


class RefreshLogicalSessionCacheNow(Command):
    """`refreshLogicalSessionCacheNow`: ends what has expired without waiting for the next round."""

    name = "refreshLogicalSessionCacheNow"
    summary = "Brings the table of logical sessions up to date."

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{}`."""
        context.services.sessions.expire()
        return {}


class CommitTransaction(Command):
    """`commitTransaction`: a standalone server has no transaction to commit."""

    name = "commitTransaction"
    summary = "Commits a transaction."
    admin_only = True
    in_api_version_1 = True
    writes = True

    async def run(self, context: Context, request: Request) -> Document:
        """Refuse."""
        raise CommandFailed(f"{self.name} must be run within a transaction")


class AbortTransaction(Command):
    """`abortTransaction`: a standalone server has no transaction to abort."""

    name = "abortTransaction"
    summary = "Aborts a transaction."
    admin_only = True
    in_api_version_1 = True
    writes = True

    async def run(self, context: Context, request: Request) -> Document:
        """Refuse."""
        raise CommandFailed(f"{self.name} must be run within a transaction")


class ReapLogicalSessionCacheNow(Command):
    """`reapLogicalSessionCacheNow`: forgets the transactions of sessions that are gone; there are none."""

    name = "reapLogicalSessionCacheNow"
    summary = "Forgets what is kept for transactions of ended sessions."

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{}`."""
        Fields(request).finish()
        return {}


def _kill(context: Context, request: Request, lsids: list[bytes]) -> None:
    """Kill these sessions; never the operation that asks."""
    request.operation.lsid = None
    for lsid in lsids:
        context.services.sessions.kill(lsid)
