"""Many rows are sorted slice by slice: in order, stable, in memory and from disk."""

import random

import pytest

from bucketd.common.values import decode, encode
from bucketd.query.sort import Sorter, parse_sort


@pytest.mark.parametrize("memory_bytes_max", [1 << 30, 1 << 20])
@pytest.mark.parametrize("raw", [False, True])
def test_slices_come_back_as_one_order(memory_bytes_max: int, raw: bool) -> None:
    source = random.Random(7)
    rows = [{"_id": number, "a": source.randrange(500)} for number in range(20_000)]
    sorter = Sorter(parse_sort({"a": -1}), memory_bytes_max=memory_bytes_max)
    for row in rows:
        sorter.add(row, raw=encode(row) if raw else None)
    found = [decode(row) if isinstance(row, bytes) else row for row, _ in sorter.results()]
    assert found == sorted(rows, key=lambda row: -row["a"])
    assert sorter.used_disk == (memory_bytes_max == 1 << 20)
    if sorter.used_disk:
        assert 0 < sorter.spilled_rows <= 20_000
