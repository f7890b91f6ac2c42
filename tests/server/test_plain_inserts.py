"""Which inserts go the short way, and which do not."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import bson
import pytest
from bson import DatetimeMS

from bucketd.common.config import Config
from bucketd.protocol.messages import parse_message
from bucketd.server.commands.table import COMMANDS
from bucketd.server.context import Client, Context
from bucketd.server.dispatch import Dispatcher
from bucketd.server.services import open_services
from support.wire_client import body_section, message, sequence_section

INSERT = {"insert": "series", "$db": "db"}
ROW = {"t": DatetimeMS(1_700_000_000_000), "x": 1}


class Lab:
    """A dispatcher without a socket."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.dispatcher = Dispatcher(COMMANDS)

    async def ask(self, raw: bytes) -> dict[str, Any]:
        """What the long way answers."""
        answer = await self.dispatcher.answer(self.context, parse_message(raw))
        return dict(bson.decode(bytes(answer.body)))

    async def short(self, raw: bytes) -> dict[str, Any] | None:
        """What the short way answers; None where it does not take the message."""
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        if not self.dispatcher.plain_inserts.begin(self.context, raw, answered.set_result):
            return None
        assert len(self.context.services.operations) == 1
        reply = dict(bson.decode(await answered))
        assert len(self.context.services.operations) == 0
        return reply


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    async with open_services(Config(dbpath=str(tmp_path))) as services:
        client = Client(id=1, peer="here:1", local="here:2", connected_ms=0)
        made = Lab(Context(services=services, client=client))
        services.commands = COMMANDS
        await made.ask(message(body_section({"create": "series", "timeseries": {"timeField": "t"}, "$db": "db"})))
        yield made


def insert(*rows: dict[str, Any], flags: int = 0, **fields: Any) -> bytes:
    return message(body_section({**INSERT, **fields}), sequence_section("documents", list(rows)), flags=flags)


async def test_a_command_that_came_before(lab: Lab) -> None:
    assert await lab.short(insert(ROW)) is None
    assert await lab.ask(insert(ROW)) == {"n": 1, "ok": 1.0}
    assert await lab.short(insert(ROW)) == {"n": 1, "ok": 1.0}
    assert await lab.short(insert(*[ROW] * 300)) == {"n": 300, "ok": 1.0}
    assert (await lab.ask(message(body_section({"count": "series", "$db": "db"}))))["n"] == 302
    # Another command has to come once itself.
    assert await lab.short(insert(ROW, ordered=False)) is None


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(insert({"x": 1}), id="a row without a time"),
        pytest.param(insert({"t": DatetimeMS(-1)}), id="the first time that no id can tell"),
        pytest.param(insert(), id="no row"),
        pytest.param(insert(ROW)[:-3] + b"abc", id="a row that is none"),
        pytest.param(insert(ROW, flags=2), id="no reply wanted"),
        pytest.param(message(body_section(INSERT)), id="no sequence"),
        pytest.param(message(body_section(INSERT), sequence_section("other", [ROW])), id="another sequence"),
        pytest.param(
            message(body_section(INSERT), sequence_section("documents", [ROW]), sequence_section("more", [])),
            id="more sequences",
        ),
        pytest.param(message(sequence_section("documents", [ROW]), body_section(INSERT)), id="the body behind"),
        *(pytest.param(insert(ROW)[:length], id=f"cut after {length}") for length in (0, 15, 21, 30, 60, 90)),
    ],
)
async def test_what_goes_the_long_way(lab: Lab, raw: bytes) -> None:
    await lab.ask(insert(ROW))
    assert await lab.short(raw) is None
    assert len(lab.context.services.operations) == 0


async def test_a_failure_is_told(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    await lab.ask(insert(ROW))

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr("bucketd.timeseries.insert.partition", fail)
    reply = await lab.short(insert(ROW))
    assert reply is not None
    assert (reply["ok"], reply["code"]) == (0.0, 1)
    assert "a fault of ours" in reply["errmsg"]
    monkeypatch.undo()
    assert await lab.short(insert(ROW)) == {"n": 1, "ok": 1.0}
