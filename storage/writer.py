"""The one thread that owns write transactions: takes what has queued, commits it together, wakes all who wait.

A write transaction of LMDB belongs to the thread that began it, and there is one at a time; so one thread begins them
all. Each work runs in a nested transaction of its own, and one that fails takes nothing with it. Then one commit, which
is one fsync, makes everything durable. While it runs, the next works queue: the busier the server, the more share one.
"""

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from .engine import Failure, Transaction
from .errors import StorageError

GROUP_WORKS_MAX: Final = 1000
GROUP_SECONDS_MAX: Final = 0.05
PATIENCE_SECONDS: Final = 0.02
"""So long work that can wait waits for other work to share a commit with."""
QUIET_SECONDS: Final = 0.1
"""Where nobody has written for so long, nobody is waited for."""

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Work:
    """A closure that waits for its turn, and whom to tell: a future or a function on an event loop, or an event."""

    closure: Callable[[Transaction], Any]
    done: "asyncio.Future[Any] | None"
    loop: asyncio.AbstractEventLoop | None
    event: threading.Event | None = None
    result: Any = None
    error: Failure = None
    then: Callable[[Any, Failure], object] | None = None


@dataclass(slots=True)
class Hold:
    """A stop among the works: what came before it is durable, what comes after it waits until it is released."""

    reached: "asyncio.Future[None]"
    loop: asyncio.AbstractEventLoop
    released: threading.Event


class Store(Protocol):
    """What the writer asks of the engine it writes for."""

    def commit_group(self, works: list[Work]) -> None:
        """Run the works and commit them; fill in `result` or `error` of each. Raises nothing."""


class Writer:
    """The thread, and the queue before it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._queue: queue.SimpleQueue[Work | Hold | None] = queue.SimpleQueue()
        self._holding: set[threading.Event] = set()
        self._patient: list[Work] = []
        self._last_write = float("-inf")
        self._closed = False
        self.commits = 0
        """Groups committed since the start."""
        self.works = 0
        """Works run since the start."""
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    async def write(self, closure: Callable[[Transaction], Any]) -> Any:
        """Run the closure in the next group; returns its result once that is durable."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()
        self._put(Work(closure, done, loop), loop)
        return await done

    def write_then(self, closure: Callable[[Transaction], Any], then: Callable[[Any, Failure], object]) -> None:
        """The same for who does not wait: `then` is called on the event loop, with the result or with why there is none."""
        loop = asyncio.get_running_loop()
        self._put(Work(closure, None, loop, then=then), loop)

    def _put(self, work: Work, loop: asyncio.AbstractEventLoop) -> None:
        self._check_open()
        self._queue.put(work)
        self._last_write = loop.time()
        if self._patient:
            for other in self._patient:
                self._queue.put(other)
            self._patient.clear()

    async def write_beside(self, closure: Callable[[Transaction], Any]) -> Any:
        """The same for a closure that can wait: it goes with the next one, or by itself where none comes soon.

        A commit of its own would be one more that somebody has to wait for who comes while it runs.
        """
        self._check_open()
        loop = asyncio.get_running_loop()
        work = Work(closure, loop.create_future(), loop)
        if self.quiet():
            self._queue.put(work)
        else:
            self._patient.append(work)
            loop.call_later(PATIENCE_SECONDS, self._hurry, work)
        assert work.done is not None
        return await work.done

    def quiet(self) -> bool:
        """Whether nobody has written lately; on an event loop."""
        return asyncio.get_running_loop().time() - self._last_write > QUIET_SECONDS

    def _hurry(self, work: Work) -> None:
        if any(waiting is work for waiting in self._patient):
            self._patient = [waiting for waiting in self._patient if waiting is not work]
            self._queue.put(work)

    def write_blocking(self, closure: Callable[[Transaction], Any]) -> Any:
        """The same for a thread without an event loop."""
        self._check_open()
        work = Work(closure, None, None, threading.Event())
        assert work.event is not None
        self._queue.put(work)
        work.event.wait()
        if work.error is not None:
            raise work.error
        return work.result

    async def hold(self) -> Callable[[], None]:
        """Wait until what is queued is durable, and commit nothing more until the returned function is called."""
        self._check_open()
        loop = asyncio.get_running_loop()
        hold = Hold(loop.create_future(), loop, threading.Event())
        self._holding.add(hold.released)
        self._queue.put(hold)
        try:
            await hold.reached
        except BaseException:
            hold.released.set()
            raise
        return hold.released.set

    def close(self) -> None:
        """Finish what is queued, held or not, and end the thread."""
        if not self._closed:
            self._closed = True
            for released in list(self._holding):
                released.set()
            self._queue.put(None)
            self._thread.join()

    def _check_open(self) -> None:
        if self._closed:
            raise StorageError("the store is closed")

    def _run(self) -> None:
        while True:
            first = self._queue.get()
            if isinstance(first, Work):
                works = [first]
                then = self._take_queued(works)
                self._store.commit_group(works)
                self.commits += 1
                self.works += len(works)
                _wake(works)
            else:
                then = first
            if isinstance(then, Hold):
                _stand_still(then)
                self._holding.discard(then.released)
            elif then is None:
                return

    def _take_queued(self, works: list[Work]) -> "Work | Hold | None":
        """Add what is queued at this moment; returns the last of it, or what stands behind it and is no work."""
        while len(works) < GROUP_WORKS_MAX:
            try:
                work = self._queue.get_nowait()
            except queue.Empty:
                break
            if not isinstance(work, Work):
                return work
            works.append(work)
        return works[-1]


def _stand_still(hold: Hold) -> None:
    def tell() -> None:
        if not hold.reached.done():
            hold.reached.set_result(None)

    try:
        hold.loop.call_soon_threadsafe(tell)
    except RuntimeError:
        # Its event loop is closed: nobody is left who could release it.
        return
    hold.released.wait()


def _wake(works: list[Work]) -> None:
    """Tell everybody, with one call into each event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Work]] = {}
    for work in works:
        if work.event is not None:
            work.event.set()
        elif work.loop is not None:
            by_loop.setdefault(work.loop, []).append(work)
    for loop, waiting in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle, waiting)
        except RuntimeError:
            # The loop was closed while its works were under way: they are durable, and nobody is left to hear it.
            logger.warning("%d works ended after their event loop", len(waiting))


def _settle(works: list[Work]) -> None:
    for work in works:
        if work.then is not None:
            _tell(work, work.then)
            continue
        if work.done is None or work.done.done():
            continue
        if work.error is not None:
            work.done.set_exception(work.error)
        else:
            work.done.set_result(work.result)


def _tell(work: Work, then: Callable[[Any, Failure], object]) -> None:
    try:
        then(work.result, work.error)
    except Exception:
        # Whoever else waits must hear of his work all the same.
        logger.exception("what follows a write has failed")


def run_one(work: Work, transaction: Transaction) -> bool:
    """Run a work's closure; True where it went well. A failure is kept in the work."""
    work.result, work.error = None, None
    try:
        work.result = work.closure(transaction)
    except Exception as error:
        work.error = error
        return False
    return True


class Budget:
    """How long a group may gather before it commits."""

    __slots__ = ("_until",)

    def __init__(self, seconds: float = GROUP_SECONDS_MAX) -> None:
        self._until = time.monotonic() + seconds

    def spent(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() >= self._until
