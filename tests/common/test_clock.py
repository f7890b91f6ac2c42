"""Clocks: the one of a test moves when it is told to, and wakes who has waited long enough."""

import asyncio

import pytest

from bucketd.common.clock import SystemClock, TestClock


async def test_sleepers_wake_when_their_time_has_come(clock: TestClock) -> None:
    early = asyncio.create_task(clock.sleep(10))
    late = asyncio.create_task(clock.sleep(20))
    await asyncio.sleep(0)
    clock.advance(10)
    await early
    assert not late.done()
    clock.advance(10)
    await late


async def test_no_time_is_no_sleep(clock: TestClock) -> None:
    await clock.sleep(0)
    await clock.sleep(-5)


async def test_who_gives_up_is_forgotten(clock: TestClock) -> None:
    sleeper = asyncio.create_task(clock.sleep(10))
    await asyncio.sleep(0)
    sleeper.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sleeper
    clock.advance(10)


def test_time_does_not_run_backwards(clock: TestClock) -> None:
    with pytest.raises(AssertionError):
        clock.advance(-1)


async def test_the_clock_of_the_system_goes_on() -> None:
    clock = SystemClock()
    before = clock.now_ms()
    await clock.sleep(2)
    assert clock.now_ms() >= before + 2
    assert clock.monotonic() <= clock.monotonic()


async def test_a_clock_that_is_set_back_keeps_nobody_waiting(clock: TestClock) -> None:
    start = clock.now_ms()
    sleeper = asyncio.create_task(clock.sleep(10))
    await asyncio.sleep(0)
    clock.set(start - 1_000_000)
    clock.advance(10)
    await sleeper
    assert (clock.now_ms(), clock.elapsed_ms()) == (start - 1_000_000 + 10, 10)
    clock.set(start)
    assert clock.elapsed_ms() == 1_000_000


async def test_a_clock_runs_until_it_is_stopped(clock: TestClock) -> None:
    start = clock.now_ms()
    changes: list[bool] = []
    clock.on_change.append(lambda: changes.append(clock.frozen))
    sleeper = asyncio.create_task(clock.sleep(3))
    await asyncio.sleep(0)
    clock.freeze(False)
    await sleeper
    clock.freeze(True)
    stopped = clock.now_ms()
    assert stopped >= start + 3
    await SystemClock().sleep(2)
    assert clock.now_ms() == stopped
    assert changes == [False, True]
