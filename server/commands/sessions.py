"""Logical sessions: starting, refreshing, ending and killing them, and the ends of transactions."""

from typing import Final

from bson import Binary
from bson.binary import UUID_SUBTYPE

from ...common.errors import BadValue, CommandFailed, TypeMismatch
from ...common.values import Document, type_name
from ..context import Context, Request
from ..generic_arguments import parse_lsid
from .arguments import Fields
from .base import Command

_SESSIONS_MAX: Final = 10_000


def session_document(lsid: bytes) -> Document:
    """A session's id as clients write it."""
    return {"id": Binary(lsid, UUID_SUBTYPE)}


def _asked_sessions(request: Request) -> list[bytes]:
    """The sessions in the array that is the command's value."""
    fields = Fields(request)
    rows = fields.take_list(request.name)
    fields.finish()
    if len(rows) > _SESSIONS_MAX:
        raise BadValue(f"Too many sessions: {len(rows)}, at most {_SESSIONS_MAX} are taken at a time")
    return [parse_lsid(f"{request.name}.{request.name}.{position}", row) for position, row in enumerate(rows)]


class StartSession(Command):
    """`startSession`: a new session with an id of the server's making."""

    name = "startSession"
    summary = "Starts a logical session."

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{id, timeoutMinutes}`."""
        session = context.services.sessions.start()
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
            context.services.sessions.use(lsid)
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
        for lsid in _asked_sessions(request):
            context.services.sessions.end(lsid)
        return {}


class KillSessions(Command):
    """`killSessions`: interrupts what runs in these sessions, and closes their cursors; no ids mean all."""

    name = "killSessions"
    summary = "Kills logical sessions with their cursors and operations."

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{}`."""
        _kill(context, request, _asked_sessions(request))
        return {}


class KillAllSessions(Command):
    """`killAllSessions`: the same for all sessions of some users, or of everybody."""

    name = "killAllSessions"
    summary = "Kills the logical sessions of users."

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{}`."""
        fields = Fields(request)
        rows = fields.take_list(self.name)
        fields.finish()
        for position, row in enumerate(rows):
            path = f"{self.name}.{self.name}.{position}"
            if not isinstance(row, dict):
                raise TypeMismatch(f"BSON field '{path}' is the wrong type '{type_name(row)}', expected type 'object'")
            user = Fields(row, path)
            user.take_string("user")
            user.take_string("db")
            user.finish()
        _kill(context, request, [])
        return {}


class KillAllSessionsByPattern(Command):
    """`killAllSessionsByPattern`: the same by patterns on session, user or role."""

    name = "killAllSessionsByPattern"
    summary = "Kills the logical sessions that match patterns."

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{}`."""
        fields = Fields(request)
        rows = fields.take_list(self.name)
        fields.finish()
        chosen: list[bytes] = []
        everybody = not rows
        for position, row in enumerate(rows):
            path = f"{self.name}.{self.name}.{position}"
            if not isinstance(row, dict):
                raise TypeMismatch(f"BSON field '{path}' is the wrong type '{type_name(row)}', expected type 'object'")
            if row.get("lsid") is not None:
                chosen.append(parse_lsid(f"{path}.lsid", row["lsid"]))
            else:
                everybody = True
        _kill(context, request, [] if everybody else chosen)
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
    """Kill these sessions, or all where there are none; never the operation that asks."""
    services = context.services
    request.operation.lsid = None
    for lsid in lsids or [session.lsid for session in services.sessions]:
        services.sessions.kill(lsid)
