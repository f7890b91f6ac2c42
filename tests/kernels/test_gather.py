"""Accumulators in the kernel refuse what would lead outside of rows or groups."""

import math
from typing import Any

import numpy as np
import pytest

from bucketd.kernels import GroupExtremes, GroupRuns, GroupSpreads, GroupSums, within_sums


def whole(*numbers: int) -> Any:
    return np.array(numbers, dtype=np.int64)


@pytest.mark.parametrize(
    ("starts", "stops", "slots"),
    [
        ((0,), (4,), (0,)),
        ((2,), (1,), (0,)),
        ((-1,), (2,), (0,)),
        ((0,), (3,), (2,)),
        ((0,), (3,), (-1,)),
        ((0, 1), (3,), (0,)),
    ],
)
def test_runs_stay_within_rows_and_groups(starts: Any, stops: Any, slots: Any) -> None:
    with pytest.raises(ValueError, match="run"):
        GroupRuns(3, 2, whole(*starts), whole(*stops), whole(*slots))


def test_columns_have_as_many_rows_as_runs() -> None:
    runs = GroupRuns(3, 1, whole(0), whole(3), whole(0))
    present = np.ones(2, dtype=np.bool_)
    for refused in (
        lambda: GroupSums().add_whole(runs, False, whole(1, 2), None),
        lambda: GroupSums().add_doubles(runs, np.zeros(3), present),
        lambda: GroupSpreads().add(runs, np.zeros(4), None),
        lambda: GroupExtremes(True).add_whole(runs, 16, whole(1), None),
    ):
        with pytest.raises(ValueError, match="another number of rows"):
            refused()


def test_sums_keep_widths_and_presence() -> None:
    runs = GroupRuns(4, 3, whole(0, 2), whole(2, 4), whole(2, 0))
    sums = GroupSums()
    sums.add_whole(runs, False, whole(2**31 - 1, 1, 5, 6), np.array([True, True, True, False]))
    kinds, totals, _, counts = sums.results(0, 3)
    assert kinds.tolist() == [16, 16, 18]
    assert totals == [5, 0, 2**31]
    assert counts.tolist() == [1, 0, 2]


def test_sums_of_doubles_are_those_of_fsum() -> None:
    values = np.random.default_rng(1).normal(0, 1e9, 1000) * 10.0 ** np.arange(-5, 5).repeat(100)
    sums = GroupSums()
    assert sums.add_doubles(GroupRuns(1000, 1, whole(0), whole(1000), whole(0)), values, None)
    assert sums.results(0, 1)[2].tolist() == [math.fsum(values.tolist())]


def test_doubles_that_could_leave_their_range_are_no_sums() -> None:
    assert within_sums(np.array([1e289, math.inf, math.nan]))
    assert not within_sums(np.array([1e300]))
