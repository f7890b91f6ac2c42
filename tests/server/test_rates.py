"""Buckets of tokens and the gates made of them, on a clock that the test moves."""

import pytest

from bucketd.server.rates import Admission, PerAddress, TokenBucket


class Moment:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket_gives_its_burst_and_then_its_rate() -> None:
    moment = Moment()
    bucket = TokenBucket(moment, 10.0, 0.5)
    assert [bucket.take() for _ in range(6)] == [True] * 5 + [False]
    moment.now += 0.2
    assert [bucket.take() for _ in range(3)] == [True, True, False]
    moment.now += 1000
    assert bucket.available == 5.0


def test_who_borrows_waits_longer_the_more_have_borrowed() -> None:
    moment = Moment()
    bucket = TokenBucket(moment, 10.0, 0.1)
    assert [bucket.borrow() for _ in range(3)] == pytest.approx([0.0, 0.1, 0.2])
    moment.now += 0.2
    assert bucket.borrow() == pytest.approx(0.1)


def test_a_gate_counts_whom_it_lets_in_and_whom_it_turns_away() -> None:
    gate = Admission(Moment())
    gate.set(2.0, 1.0)
    assert [gate.admit() for _ in range(3)] == [True, True, False]
    told = gate.statistics(queues=False)
    assert told == {
        "rejectedAdmissions": 1,
        "exemptedAdmissions": 0,
        "successfulAdmissions": 2,
        "attemptedAdmissions": 3,
        "totalAvailableTokens": 0,
    }


def test_a_queue_is_as_long_as_it_may_be() -> None:
    gate = Admission(Moment())
    gate.set(2.0, 0.5)
    gate.queue_max = 1
    assert gate.enqueue() == 0.0
    assert gate.enqueue() == pytest.approx(0.5)
    assert gate.enqueue() is None
    gate.leave_queue(interrupted=False)
    assert gate.enqueue() == pytest.approx(1.0)
    gate.leave_queue(interrupted=True)
    told = gate.statistics(queues=True)
    assert (told["addedToQueue"], told["removedFromQueue"], told["interruptedInQueue"]) == (2, 2, 1)
    assert (told["successfulAdmissions"], told["rejectedAdmissions"]) == (2, 1)


def test_addresses_do_not_wait_for_each_other() -> None:
    addresses = PerAddress(Moment())
    assert [addresses.wait_seconds("a", 1.0, 1.0) for _ in range(2)] == [0.0, 1.0]
    assert addresses.wait_seconds("b", 1.0, 1.0) == 0.0
