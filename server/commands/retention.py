"""What makes tests of retention quick: a clock that obeys, and passes of the TTL monitor on demand.

Both are of a server that was started with `--test-clock`, and unknown to any other.
"""

from typing import Final

from bson import DatetimeMS, Int64

from ...common.clock import TestClock as Clock
from ...common.errors import BadValue, CommandNotFound, MongoError
from ...common.values import Document
from ..context import Context, Request, Services
from ..operations import Operation
from .arguments import Fields
from .base import Command

_DATE_MS_MIN: Final = -62_135_596_800_000
_DATE_MS_MAX: Final = 253_402_300_799_999
"""The years 1 to 9999, which every driver can show."""


class TestClock(Command):
    """`testClock`: reads, sets, freezes and advances the clock of the server.

    A pass of the TTL monitor that becomes due by it has ended when this is answered.
    """

    name = "testClock"
    summary = "Reads, sets, stops and advances the clock of a server under test."
    admin_only = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer what time it is now, and whether it stands still.

        Raises:
            BadValue: a time outside of the years 1 to 9999, or an advance into the past.
        """
        clock = _clock_of(context.services, self.name)
        fields = Fields(request, known=("set", "advanceMillis", "freeze"))
        now = fields.take_any("set")
        if now is not None and not isinstance(now, DatetimeMS):
            raise fields.wrong_type("set", now, "type 'date'")
        advance_ms = fields.take_whole_number("advanceMillis", default=0, low=0)
        freeze = fields.take_bool("freeze", default=None, exact=True)
        then_ms = (clock.now_ms() if now is None else int(now)) + advance_ms
        if not _DATE_MS_MIN <= then_ms <= _DATE_MS_MAX:
            raise BadValue("the clock can be set to the years 1 to 9999 only")
        if freeze is not None:
            clock.freeze(freeze)
        if now is not None:
            clock.set(int(now))
        if advance_ms:
            clock.advance(advance_ms)
        await context.services.ttl.settled()
        return {"now": DatetimeMS(clock.now_ms()), "frozen": clock.frozen}


class TtlPass(Command):
    """`ttlPass`: a pass of the TTL monitor at once, also where it is switched off."""

    name = "ttlPass"
    summary = "Deletes what has expired, without waiting for the monitor."
    admin_only = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer what was deleted."""
        _clock_of(context.services, self.name)
        Fields(request, known=())
        report = await context.services.ttl.run_pass(on_demand=lambda: _goes_on(request.operation))
        request.operation.check()
        return {
            "deletedDocuments": Int64(report.deleted_documents),
            "deletedBuckets": Int64(report.deleted_buckets),
            "subPasses": Int64(report.sub_passes),
        }


def _goes_on(operation: Operation) -> bool:
    """Whether nobody has killed the operation, and its time is not over."""
    try:
        operation.check()
    except MongoError:
        return False
    return True


def _clock_of(services: Services, command: str) -> Clock:
    """The clock of a server under test.

    Raises:
        CommandNotFound: of any other server.
    """
    if not isinstance(services.clock, Clock):
        raise CommandNotFound(f"no such command: '{command}'")
    return services.clock
