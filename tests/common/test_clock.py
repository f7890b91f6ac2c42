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
    await clock.sleep_until(clock.now_ms() - 5)


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
