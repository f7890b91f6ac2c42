"""Operations, sessions, cursors, the gate before writes: each by itself."""

import asyncio
from typing import Any

import pytest

from bucketd.common.clock import TestClock
from bucketd.common.errors import Interrupted, MaxTimeMSExpired, MongoError
from bucketd.server.cursors import CursorRegistry
from bucketd.server.operations import OperationRegistry
from bucketd.server.sessions import SessionRegistry
from bucketd.server.write_gate import WriteGate
from support.memory_engine import MemoryEngine

ONE, OTHER = b"1" * 16, b"2" * 16


class Plan:
    """An execution that knows whether it was closed."""

    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


class ManualClock(TestClock):
    """Also its monotonic scale stands still."""

    def monotonic(self) -> float:
        return self.now_ms() / 1000


def code(caught: pytest.ExceptionInfo[Any]) -> int:
    assert isinstance(caught.value, MongoError)
    return caught.value.number


# Operations.


def test_an_operation_ends_at_its_deadline() -> None:
    clock = ManualClock(1000)
    operation = OperationRegistry(clock).begin()
    operation.limit_time(50)
    clock.advance(49)
    operation.check()
    clock.advance(1)
    with pytest.raises(MaxTimeMSExpired):
        operation.check()


def test_without_a_limit_an_operation_goes_on() -> None:
    clock = ManualClock(1000)
    operation = OperationRegistry(clock).begin()
    operation.limit_time(0)
    clock.advance(10**9)
    operation.check()


def test_a_killed_operation_ends_at_its_next_check(clock: TestClock) -> None:
    registry = OperationRegistry(clock)
    operation = registry.begin()
    assert registry.kill(operation.opid)
    assert operation.killed
    with pytest.raises(Interrupted):
        operation.check()
    registry.end(operation)
    assert not registry.kill(operation.opid)
    assert len(registry) == 0


def test_operations_of_a_session_are_killed_together(clock: TestClock) -> None:
    registry = OperationRegistry(clock)
    operations = [registry.begin() for _ in range(3)]
    for operation, lsid in zip(operations, (ONE, OTHER, ONE), strict=True):
        operation.lsid = lsid
    registry.kill_session(ONE)
    assert [operation.killed for operation in operations] == [True, False, True]


async def test_waiting_ends_with_the_moment_the_time_or_a_kill(clock: TestClock) -> None:
    registry = OperationRegistry(clock)
    loop = asyncio.get_running_loop()

    moment = loop.create_future()
    waiting = asyncio.create_task(registry.begin().wait(moment))
    await asyncio.sleep(0)
    moment.set_result(None)
    assert await waiting is True

    assert await registry.begin().wait(loop.create_future(), 0.001) is False

    operation = registry.begin()
    waiting = asyncio.create_task(operation.wait(loop.create_future()))
    await asyncio.sleep(0)
    operation.kill()
    with pytest.raises(Interrupted):
        await waiting


async def test_waiting_ends_at_the_deadline(clock: TestClock) -> None:
    operation = OperationRegistry(clock).begin()
    operation.limit_time(1)
    with pytest.raises(MaxTimeMSExpired):
        await operation.wait(asyncio.get_running_loop().create_future(), 60)


# Sessions.


def sessions(clock: TestClock, **options: Any) -> SessionRegistry:
    return SessionRegistry(clock, lambda: 30, **options)


def test_a_session_lives_as_long_as_it_is_used(clock: TestClock) -> None:
    registry = sessions(clock)
    ended: list[bytes] = []
    registry.on_end.append(ended.append)
    registry.use(ONE)
    registry.use(OTHER)
    clock.advance(29 * 60_000)
    registry.use(ONE)
    clock.advance(60_000)
    assert registry.expire() == 1
    assert ended == [OTHER]
    assert ONE in registry


def test_an_ended_session_goes_with_the_next_round_unless_it_comes_back(clock: TestClock) -> None:
    registry = sessions(clock)
    for lsid in (ONE, OTHER):
        registry.use(lsid)
        assert registry.end(lsid)
    registry.use(ONE)
    assert registry.expire() == 1
    assert [session.lsid for session in registry] == [ONE]
    assert not registry.end(OTHER)


def test_killing_a_session_tells_who_holds_something_for_it(clock: TestClock) -> None:
    registry = sessions(clock)
    ended: list[bytes] = []
    registry.on_end.append(ended.append)
    session = registry.start()
    registry.kill(session.lsid)
    assert ended == [session.lsid]
    assert session.lsid in registry


def test_there_is_an_end_to_sessions(clock: TestClock) -> None:
    registry = sessions(clock, sessions_max=lambda: 1)
    registry.use(ONE)
    registry.use(ONE)
    with pytest.raises(MongoError) as caught:
        registry.use(OTHER)
    assert code(caught) == 261


# Cursors.


def cursors(clock: TestClock) -> CursorRegistry:
    return CursorRegistry(clock, lambda: 600_000)


def test_a_cursor_is_taken_released_and_closed(clock: TestClock) -> None:
    registry, plan = cursors(clock), Plan()
    cursor_id = registry.open(plan, "d.c")
    cursor = registry.take(cursor_id, "d.c")
    registry.release(cursor)
    assert registry.take(cursor_id, "d.c") is cursor
    registry.close(cursor)
    registry.close(cursor)
    assert plan.closed == 1
    assert len(registry) == 0
    assert registry.counters.opened == registry.counters.more_than_one_batch == 1


@pytest.mark.parametrize(
    ("opened_in", "namespace", "lsid", "number"),
    [
        (None, "d.other", None, 13),
        (ONE, "d.c", OTHER, 50738),
        (ONE, "d.c", None, 50738),
        (None, "d.c", ONE, None),
        (ONE, "d.c", ONE, None),
    ],
)
def test_whose_a_cursor_is(
    clock: TestClock, opened_in: bytes | None, namespace: str, lsid: bytes | None, number: int | None
) -> None:
    registry = cursors(clock)
    cursor_id = registry.open(Plan(), "d.c", lsid=opened_in)
    if number is None:
        registry.take(cursor_id, namespace, lsid=lsid)
        return
    with pytest.raises(MongoError) as caught:
        registry.take(cursor_id, namespace, lsid=lsid)
    assert code(caught) == number


def test_a_cursor_serves_one_at_a_time(clock: TestClock) -> None:
    registry = cursors(clock)
    cursor_id = registry.open(Plan(), "d.c")
    registry.take(cursor_id, "d.c")
    with pytest.raises(MongoError) as caught:
        registry.take(cursor_id, "d.c")
    assert code(caught) == 143


def test_killing_tells_what_became_of_each(clock: TestClock) -> None:
    registry = cursors(clock)
    one, other = (registry.open(Plan(), "d.c") for _ in range(2))
    result = registry.kill([one, 5, one, other])
    assert (result.killed, result.not_found) == ([one, other], [5, one])
    with pytest.raises(MongoError) as caught:
        registry.take(one, "d.c")
    assert code(caught) == 43


def test_a_cursor_at_work_is_killed_when_it_is_released(clock: TestClock) -> None:
    registry, plan = cursors(clock), Plan()
    cursor = registry.take(registry.open(plan, "d.c"), "d.c")
    registry.kill([cursor.id])
    assert plan.closed == 0
    with pytest.raises(MongoError) as caught:
        registry.release(cursor)
    assert code(caught) == 237
    assert plan.closed == 1


def test_idle_cursors_go(clock: TestClock) -> None:
    registry = cursors(clock)
    idle = registry.open(Plan(), "d.c")
    kept = [
        registry.open(Plan(), "d.c", no_timeout=True),
        registry.open(Plan(), "d.c", lsid=ONE),
        registry.take(registry.open(Plan(), "d.c"), "d.c").id,
    ]
    clock.advance(600_000)
    kept.append(registry.open(Plan(), "d.c"))
    assert registry.kill_idle() == 1
    assert sorted(cursor.id for cursor in registry) == sorted(kept)
    assert idle not in kept
    assert registry.counters.timed_out == 1


def test_cursors_of_a_session_go_with_it(clock: TestClock) -> None:
    registry = cursors(clock)
    registry.open(Plan(), "d.c", lsid=ONE)
    kept = registry.open(Plan(), "d.c", lsid=OTHER)
    assert registry.kill_session(ONE) == 1
    assert [cursor.id for cursor in registry] == [kept]


def test_all_cursors_are_closed_in_the_end(clock: TestClock) -> None:
    registry = cursors(clock)
    plans = [Plan() for _ in range(3)]
    for plan in plans:
        registry.open(plan, "d.c")
    registry.close_all()
    assert [plan.closed for plan in plans] == [1, 1, 1]


# The gate before writes.


async def test_writes_wait_until_every_lock_is_taken_away(clock: TestClock) -> None:
    gate = WriteGate()
    engine = MemoryEngine()
    assert (await gate.lock(engine), await gate.lock(engine)) == (1, 2)
    assert engine.held
    writer = asyncio.create_task(gate.pass_through(OperationRegistry(clock).begin()))
    await asyncio.sleep(0)
    assert gate.unlock() == 1
    await asyncio.sleep(0)
    assert not writer.done()
    assert gate.unlock() == 0
    assert not engine.held
    await writer


async def test_a_write_that_waits_can_be_killed(clock: TestClock) -> None:
    gate = WriteGate()
    await gate.lock(MemoryEngine())
    operation = OperationRegistry(clock).begin()
    writer = asyncio.create_task(gate.pass_through(operation))
    await asyncio.sleep(0)
    operation.kill()
    with pytest.raises(Interrupted):
        await writer
