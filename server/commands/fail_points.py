"""`configureFailPoint`, of a server that was started with `--setParameter enableTestCommands=1`."""

from ...common.errors import CommandNotFound, FailPointSetFailed
from ...common.values import Document
from ..context import Context, Request
from ..fail_points import FAIL_COMMAND, FailPoints
from .arguments import REQUIRED, Fields
from .base import Command


class ConfigureFailPoint(Command):
    """`configureFailPoint`."""

    name = "configureFailPoint"
    summary = "Makes commands fail, for tests."
    admin_only = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer how often the fail point acted before."""
        services = context.services
        if not services.parameters["enableTestCommands"]:
            raise CommandNotFound(f"no such command: '{self.name}'")
        fields = Fields(request, known=("mode", "data"))
        name = fields.take_string(self.name)
        mode = fields.take_any("mode", default=REQUIRED)
        data = fields.take_document("data", default={})
        if name != FAIL_COMMAND:
            raise FailPointSetFailed(f"{name} not found")
        points: FailPoints = services.fail_points
        return {"count": points.configure(name, mode, data)}
