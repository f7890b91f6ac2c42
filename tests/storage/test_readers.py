"""Readers wait while they are shut out, and are known by what they have begun to read."""

import asyncio

from bucketd.storage.readers import Readers


async def test_who_has_begun_to_read_is_known_until_he_leaves() -> None:
    readers = Readers()
    first, second = readers.enter(), readers.enter()
    assert not readers.any_of([b"a", b"b"])
    first.reads.add(b"a")
    second.reads.update((b"b", b"c"))
    assert readers.any_of([b"x", b"a"])
    assert not readers.any_of([b"x"])
    readers.leave(first)
    assert not readers.any_of([b"a"])
    assert readers.any_of([b"c"])
    # Whoever is forgotten has left.
    del second
    assert not readers.any_of([b"b"])
    async with readers.reading(b"z"):
        assert readers.any_of([b"z"])
    assert not readers.any_of([b"z"])


async def test_readers_wait_while_they_are_shut_out() -> None:
    readers = Readers()
    events: list[str] = []

    async def read() -> None:
        async with readers.reading(b"a"):
            events.append("read")

    await readers.opened()
    with readers.shut_out():
        assert readers.shut
        task = asyncio.create_task(read())
        gone = asyncio.create_task(readers.opened())
        await asyncio.sleep(0)
        # One that gives up waiting takes nobody with it.
        gone.cancel()
        await asyncio.sleep(0)
        assert gone.cancelled()
        assert events == []
        assert not readers.any_of([b"a"])
        events.append("moved")
    assert not readers.shut
    await task
    assert events == ["moved", "read"]
