"""`getMore` and `killCursors`: the rest of a cursor's rows, and its early end."""

import asyncio
from typing import Any, Final

from bson import Int64

from ...common.errors import BadValue, MongoError, TypeMismatch, Unauthorized
from ...common.values import Document, type_name
from ...kernels import RowArray
from ...protocol.replies import Reply
from ..authorization import may
from ..context import Context, Request, Services
from ..cursors import Cursor
from .answering import answer_rows
from .arguments import Fields, collection_namespace
from .base import Command

_AWAIT_MS_DEFAULT: Final = 1000
_AWAIT_STEP_SECONDS: Final = 0.02


class GetMore(Command):
    """`getMore`: the next batch of a cursor."""

    name = "getMore"
    summary = "Retrieves the next batch of a cursor."
    in_api_version_1 = True
    op = "getmore"

    async def run(self, context: Context, request: Request) -> Reply:
        """Answer the next batch; id 0 where it was the last."""
        services = context.services
        fields = Fields(
            request, known=("collection", "batchSize", "term", "lastKnownCommittedOpTime", "includeQueryStatsMetrics")
        )
        cursor_id = fields.take_long("getMore")
        collection = fields.take_string("collection")
        size = fields.take_whole_number("batchSize", default=None, low=0)
        fields.take_long("term", default=None)
        namespace = _namespace(request.database, collection)
        request.operation.namespace = namespace
        request.operation.cursor_id = cursor_id
        cursor = services.cursors.take(cursor_id, namespace, lsid=request.generic.lsid, user=context.client.user)
        if "comment" not in request.body and cursor.command.get("comment") is not None:
            request.operation.command = {**request.body, "comment": cursor.command["comment"]}
        try:
            if request.body.get("maxTimeMS") is not None and not cursor.await_data:
                raise BadValue("cannot set maxTimeMS on getMore command for a non-awaitData cursor")
        except MongoError:
            services.cursors.release(cursor)
            raise
        try:
            rows = await _next_rows(services, cursor, request, int(size) if size else None)
        except BaseException:
            services.cursors.close(cursor)
            raise
        cursor.documents += len(rows)
        services.counters.documents_returned += len(rows)
        left = cursor.extra.get("left")
        if left is not None:
            left = cursor.extra["left"] = left - len(rows)
        if cursor.execution.exhausted or (left == 0 and not cursor.tailable):
            services.cursors.close(cursor)
            cursor_id = 0
        else:
            services.cursors.release(cursor)
            request.more_to_come = True
        return await answer_rows(False, cursor_id, namespace, rows)


def _namespace(database: str, collection: str) -> str:
    if collection.startswith("$cmd."):
        return f"{database}.{collection}"
    return str(collection_namespace(database, collection))


async def _next_rows(services: Services, cursor: Cursor, request: Request, size: int | None) -> RowArray:
    """The next rows; a cursor that waits for data waits a while for the first one."""
    left = cursor.extra.get("left")
    rows_max = left if size is None else size if left is None else min(size, left)
    if rows_max == 0:
        return RowArray()
    if not cursor.await_data:
        # What the query may take in all, its pauses left out.
        time_left_ms = cursor.extra.get("time_left_ms")
        if time_left_ms:
            request.operation.limit_time(time_left_ms)
        rows: RowArray = await cursor.execution.next_batch(rows_max, watch=request.operation)
        return rows
    wait_ms = request.generic.max_time_ms or _AWAIT_MS_DEFAULT
    request.operation.limit_time(0)
    request.operation.waited = True
    until = services.clock.monotonic() + wait_ms / 1000
    while True:
        rows = await cursor.execution.next_batch(rows_max, watch=request.operation)
        if len(rows) or cursor.execution.exhausted or services.clock.monotonic() >= until or cursor.killed is not None:
            return rows
        await asyncio.sleep(_AWAIT_STEP_SECONDS)


class KillCursors(Command):
    """`killCursors`: give cursors up."""

    name = "killCursors"
    summary = "Kills open cursors."
    in_api_version_1 = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer which of the cursors were killed."""
        fields = Fields(request, known=("cursors",))
        fields.take_namespace()
        values = fields.take_list("cursors")
        ids = [_cursor_id(position, value) for position, value in enumerate(values) if value is not None]
        services, client = context.services, context.client
        if services.config.auth:
            others = [owner for owner in map(services.cursors.owner, ids) if owner not in (None, client.user)]
            if others and not may(services, client, "killAnyCursor"):
                raise Unauthorized(f"not authorized on {request.database} to execute command {{ killCursors }}")
        result = services.cursors.kill(ids)
        return {
            "cursorsKilled": _longs(result.killed),
            "cursorsNotFound": _longs(result.not_found),
            "cursorsAlive": _longs(result.alive),
            "cursorsUnknown": _longs(result.unknown),
        }


def _cursor_id(position: int, value: Any) -> int:
    if not isinstance(value, Int64):
        raise TypeMismatch(
            f"BSON field 'killCursors.cursors.{position}' is the wrong type '{type_name(value)}', expected type 'long'"
        )
    return int(value)


def _longs(values: list[int]) -> list[Int64]:
    return [Int64(value) for value in values]
