"""What every command is."""

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

from ...common.values import Document
from ...protocol.replies import Reply
from ..context import Context, Request


class Command(ABC):
    """One verb of the wire protocol.

    A command keeps nothing between two requests: what lasts longer is reached through the context.
    """

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    summary: ClassVar[str]
    writes: ClassVar[bool] = False
    """Accepts a writeConcern."""
    reads: ClassVar[bool] = False
    """Accepts a readConcern beyond `local`."""
    admin_only: ClassVar[bool] = False
    needs_login: ClassVar[bool] = True
    in_api_version_1: ClassVar[bool] = False
    op: ClassVar[Literal["query", "getmore", "insert", "update", "remove", "command"]] = "command"
    """What currentOp and `top` call it. dispatch counts query, getmore and command; the others count their statements
    themselves (`services.counters`)."""
    ignores_generic: ClassVar[bool] = False
    """Whether malformed generic arguments and concerns are passed over."""

    def changes_data(self, request: Request) -> bool:
        """Whether the request writes, so that the lock of fsync holds it back."""
        return self.writes

    @abstractmethod
    async def run(self, context: Context, request: Request) -> Document | Reply:
        """Answer the request, or raise a MongoError.

        The answer is the reply without `ok` (dispatch adds it), or a whole reply as raw BSON (`ok` included) where it
        was assembled from raw documents (`protocol.replies`).
        """
