"""Time zones on arrays: the offset from UTC of many moments at once, told by the row engine's own calendar.

A day is looked at once: an offset that is the same at both of its ends holds for all of it, else the change is searched.
"""

from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..expression.calendar import MS_PER_DAY, Zone, zone

Times = NDArray[np.int64]

_KNOWN_DAYS_MAX: Final = 200_000
_TABLE_MAX: Final = 1 << 22


def distinct(codes: Times) -> tuple[Times, Times, Times]:
    """The different codes, where each stands first, and for each code its place among the different ones."""
    low, high = int(codes.min()), int(codes.max())
    span = high - low + 1
    if span > min(_TABLE_MAX, 4 * len(codes) + 65_536):
        found, firsts, inverse = np.unique(codes, return_index=True, return_inverse=True)
        return found, firsts.astype(np.int64), inverse.astype(np.int64)
    places = codes - low
    table = np.full(span, -1, dtype=np.int64)
    table[places[::-1]] = np.arange(len(codes) - 1, -1, -1)
    met = np.flatnonzero(table >= 0)
    ranks = np.empty(span, dtype=np.int64)
    ranks[met] = np.arange(len(met))
    return met + low, table[met], ranks[places]


class ZoneTimes:
    """What a zone is ahead of UTC, for arrays of moments."""

    def __init__(self, of: Zone) -> None:
        self._zone = of
        self._fixed = of.fixed_offset_ms
        self._days: dict[int, tuple[int, int, int]] = {}

    def offsets(self, utc: Times) -> Times | np.int64:
        """What local time is ahead of UTC at these moments."""
        if self._fixed is not None or not len(utc):
            return np.int64(self._fixed or 0)
        days, _, inverse = distinct(utc // MS_PER_DAY)
        if len(self._days) + len(days) > _KNOWN_DAYS_MAX:
            self._days.clear()
        found = np.array([self._day(day) for day in days.tolist()], dtype=np.int64)
        before, change, after = found[:, 0], found[:, 1], found[:, 2]
        if (before == after).all():
            return before[inverse]
        return np.where(utc < change[inverse], before[inverse], after[inverse])

    def to_local(self, utc: Times) -> Times:
        """Local times of moments."""
        return utc + self.offsets(utc)

    def to_utc(self, local: Times) -> Times:
        """The moments of local times, as `Zone.to_utc` has them."""
        if self._fixed is not None:
            return local - np.int64(self._fixed)
        before = self.offsets(local - MS_PER_DAY)
        guess = local - before
        later = local - self.offsets(local + MS_PER_DAY)
        late = (self.offsets(guess) != before) & (self.offsets(later) == local - later)
        return np.where(late, later, guess)

    def _day(self, day: int) -> tuple[int, int, int]:
        """The offset at the beginning of a day (of UTC), when it changes, and the offset after that."""
        known = self._days.get(day)
        if known is None:
            low, high = day * MS_PER_DAY, (day + 1) * MS_PER_DAY
            before, after = self._zone.offset_ms(low), self._zone.offset_ms(high - 1)
            while before != after and high - low > 1:
                middle = (low + high) // 2
                if self._zone.offset_ms(middle) == before:
                    low = middle
                else:
                    high = middle
            known = self._days[day] = (before, high, after)
        return known


@lru_cache(maxsize=256)
def zone_times(name: str) -> ZoneTimes:
    """A zone by its name or offset.

    Raises:
        Location: there is none.
    """
    return ZoneTimes(zone(name))
