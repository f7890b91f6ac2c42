"""How often something may happen: buckets of tokens, filled at a steady rate."""

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from bson import Int64

from ..common.values import Document

_ADDRESSES_MAX: Final = 10_000
_INT64_MAX: Final = 2**63 - 1


class TokenBucket:
    """`rate` tokens a second come in, at most `burst_seconds` worth of them are kept.

    `now` tells seconds on a scale that only goes forward.
    """

    def __init__(self, now: Callable[[], float], rate: float, burst_seconds: float) -> None:
        self._now = now
        self._at = now()
        self.set(rate, burst_seconds)
        self._tokens = self._most

    def set(self, rate: float, burst_seconds: float) -> None:
        """Other figures from here on; the bucket is full."""
        self._rate = rate
        self._most = max(rate * burst_seconds, 1.0)
        self._tokens = self._most

    def take(self) -> bool:
        """Take a token, where there is one."""
        self._fill()
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def borrow(self) -> float:
        """Take a token that may only come in later; returns in how many seconds."""
        self._fill()
        self._tokens -= 1.0
        return max(0.0, -self._tokens / self._rate)

    def give_back(self) -> None:
        """The token was not needed."""
        self._tokens += 1.0

    @property
    def available(self) -> float:
        """Tokens at the moment."""
        self._fill()
        return max(0.0, self._tokens)

    def _fill(self) -> None:
        now = self._now()
        self._tokens = min(self._most, self._tokens + (now - self._at) * self._rate)
        self._at = now


class Admission:
    """A gate for something that has a rate, with the counters that MongoDB has for it."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._bucket = TokenBucket(now, 2.0**31 - 1, 1.0)
        self.enabled = False
        self.queue_max = 0
        self.queued = 0
        self.added = 0
        self.removed = 0
        self.rejected = 0
        self.exempted = 0
        self.successful = 0
        self.attempted = 0
        self.interrupted = 0

    def set(self, rate: float, burst_seconds: float) -> None:
        """Other figures from here on."""
        self._bucket.set(rate, min(burst_seconds, 1e9))

    def admit(self) -> bool:
        """Whether one more is let in at once."""
        self.attempted += 1
        if self._bucket.take():
            self.successful += 1
            return True
        self.rejected += 1
        return False

    def enqueue(self) -> float | None:
        """In how many seconds one more is let in; None where too many wait already."""
        self.attempted += 1
        wait = self._bucket.borrow()
        if wait <= 0:
            self.successful += 1
            return 0.0
        if self.queued >= self.queue_max:
            self._bucket.give_back()
            self.rejected += 1
            return None
        self.queued += 1
        self.added += 1
        return wait

    def leave_queue(self, *, interrupted: bool) -> None:
        """Who was told to wait is let in, or has gone away."""
        self.queued -= 1
        self.removed += 1
        if interrupted:
            self.interrupted += 1
        else:
            self.successful += 1

    def statistics(self, *, queues: bool) -> Document:
        """The counters; `queues` adds those of who waited."""
        waited = {
            "addedToQueue": Int64(self.added),
            "removedFromQueue": Int64(self.removed),
            "interruptedInQueue": Int64(self.interrupted),
        }
        available = self._bucket.available
        return {
            **(waited if queues else {}),
            "rejectedAdmissions": Int64(self.rejected),
            "exemptedAdmissions": Int64(self.exempted),
            "successfulAdmissions": Int64(self.successful),
            "attemptedAdmissions": Int64(self.attempted),
            "totalAvailableTokens": Int64(min(int(available), _INT64_MAX) if math.isfinite(available) else _INT64_MAX),
        }


class PerAddress:
    """A bucket for each address, those that were not used for longest forgotten first."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def wait_seconds(self, address: str, rate: float, burst_seconds: float) -> float:
        """How long the next request of the address has to wait."""
        bucket = self._buckets.get(address)
        if bucket is None:
            bucket = self._buckets[address] = TokenBucket(self._now, rate, burst_seconds)
            if len(self._buckets) > _ADDRESSES_MAX:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(address)
        return bucket.borrow()
