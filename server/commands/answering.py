"""Replies with a cursor: small ones at once, large ones beside the event loop."""

import asyncio
from typing import Final

from ...common.values import Document
from ...kernels import RowArray
from ...protocol.replies import Reply, cursor_reply

_LARGE_BYTES: Final = 512 * 1024
"""From here on writing the rows takes longer than it takes to hand them to a thread."""


async def answer_rows(
    first: bool, cursor_id: int, namespace: str, rows: RowArray, extra: Document | None = None
) -> Reply:
    """`cursor_reply`; other clients get their turn while the rows of a large one are written."""
    if rows.elements_bytes < _LARGE_BYTES:
        return cursor_reply(first, cursor_id, namespace, rows, extra)
    return await asyncio.to_thread(cursor_reply, first, cursor_id, namespace, rows, extra)
