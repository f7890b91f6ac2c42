"""The table of groups of a `$group`: in memory up to a bound, beyond that on disk.

When the groups outgrow the bound, all of them are written out, spread over files by their keys, and the table begins anew.
In the end each file is read back by itself: what belongs to one group lies in one file, in the order in which it was
gathered, so that `$first` and `$push` hold. A file that is still too large is spread over further ones.
"""

import pickle
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import IO, Any, Final

from ...common.errors import QueryExceededMemoryLimitNoDiskUseAllowed
from ...common.values import Document
from ..accumulators.base import State, value_bytes

PARTS: Final = 32
_DEPTH_MAX: Final = 4
_SLICE_GROUPS: Final = 4096
_KEY_BYTES: Final = 200
"""About what a group takes beside its key and its states."""
_CHECK_ROWS_MAX: Final = 16384
_CHECK_ROWS_MIN: Final = 64

Begin = Callable[[Document], State]
Group = tuple[Any, list[State]]


@dataclass(slots=True)
class Spilling:
    """What went to disk."""

    spills: int = 0
    records: int = 0
    bytes: int = 0


@dataclass(slots=True)
class _Files:
    """The files that groups are spread over."""

    folder: str | None
    depth: int
    parts: list[IO[bytes] | None] = field(default_factory=lambda: [None] * PARTS)

    def write(self, groups: dict[Any, Group]) -> int:
        """Append groups, each to the file of its key; answers the bytes."""
        spread: list[list[Any]] = [[] for _ in range(PARTS)]
        for key, (value, states) in groups.items():
            spread[hash((self.depth, key)) % PARTS].append((key, value, [state.kept() for state in states]))
        written = 0
        for place, rows in enumerate(spread):
            part = self.parts[place]
            if rows and part is None:
                # Nobody else can open it, so that what is read back is what was written here.
                part = self.parts[place] = tempfile.TemporaryFile(dir=self.folder)  # noqa: SIM115 (closed by `close`)
            for start in range(0, len(rows), 256):
                assert part is not None
                raw = pickle.dumps(rows[start : start + 256], protocol=5)
                part.write(raw)
                written += len(raw)
        return written

    def close(self) -> None:
        """Give up the files."""
        for part in self.parts:
            if part is not None:
                part.close()


class GroupTable:
    """Groups by key, each with the states of its accumulators."""

    def __init__(
        self,
        begin: list[Begin],
        *,
        memory_bytes_max: int,
        allow_disk_use: bool = True,
        folder: str | None = None,
        depth: int = 0,
        spilling: Spilling | None = None,
    ) -> None:
        self._begin = begin
        self._memory_bytes_max = memory_bytes_max
        self._allow_disk_use = allow_disk_use
        self._folder = folder
        self._depth = depth
        self.groups: dict[Any, Group] = {}
        """By key; another dict after every look at the memory."""
        self._key_bytes = 0
        self._rows = 0
        self._next_check = _CHECK_ROWS_MIN
        self._files: _Files | None = None
        self.spilling = Spilling() if spilling is None else spilling
        self.patient = False
        """Whether groups that do not fit wait for `relieve`, which is called between batches."""
        self._over = False

    @property
    def empty(self) -> bool:
        """Whether nothing was gathered yet."""
        return not self.groups and self._files is None

    def states(self, key: Any, value: Any) -> list[State]:
        """The states of the group with that key; a new group gets `value` for its `_id`."""
        self.make_room(1)
        return self.group(key, value)

    def make_room(self, rows: int) -> None:
        """So many rows come next: look at the memory in use when it is time to. States that were handed out may be gone then."""
        self._rows += rows
        if self._rows >= self._next_check:
            self._check()

    def group(self, key: Any, value: Any) -> list[State]:
        """The states of a group as `states`, without a look at the memory."""
        group = self.groups.get(key)
        if group is not None:
            return group[1]
        identity = value if type(value) is dict else {}
        states = [make(identity) for make in self._begin]
        self.groups[key] = (value, states)
        self._key_bytes += _KEY_BYTES + 2 * value_bytes(value)
        return states

    def finished(self) -> Iterator[tuple[Any, list[Any]] | None]:
        """The `_id` of each group with the results of its states; None is a breathing point."""
        self._check()
        if self._files is None:
            for value, states in self.groups.values():
                yield value, [state.result() for state in states]
            return
        for _ in self._spill():
            yield None
        for part in self._files.parts:
            if part is not None:
                part.seek(0)
                yield from self._read_back(part)
                part.close()

    def _read_back(self, part: IO[bytes]) -> Iterator[tuple[Any, list[Any]] | None]:
        table = GroupTable(
            self._begin,
            memory_bytes_max=self._memory_bytes_max,
            folder=self._folder,
            depth=self._depth + 1,
            spilling=self.spilling,
        )
        try:
            while True:
                try:
                    rows = pickle.load(part)
                except EOFError:
                    break
                for key, value, kept in rows:
                    for state, gathered in zip(table.states(key, value), kept, strict=True):
                        state.absorb(gathered)
                yield None
            yield from table.finished()
        finally:
            table.close()

    def close(self) -> None:
        """Give up groups and files."""
        self.groups = {}
        if self._files is not None:
            self._files.close()

    def _check(self) -> None:
        """Look at the memory that is used, and when to look again: the nearer the bound, the sooner."""
        size = self._key_bytes + sum(state.size_bytes() for _, states in self.groups.values() for state in states)
        # Keys that share all files so far are hardly spread by another one; each group has a bound of its own.
        if size > self._memory_bytes_max and self._depth < _DEPTH_MAX:
            if not self._allow_disk_use:
                raise QueryExceededMemoryLimitNoDiskUseAllowed(
                    "Exceeded memory limit for $group, but didn't allow external sort. Pass allowDiskUse:true to opt in."
                )
            if self.patient:
                self._over = True
            else:
                for _ in self._spill():
                    pass
                size = 0
        room = self._rows * (self._memory_bytes_max - size) // (4 * size) if size else _CHECK_ROWS_MIN
        # A look at many groups is worth as many rows, lest looking be all there is to do.
        often_enough = max(_CHECK_ROWS_MAX, len(self.groups) // 2)
        self._next_check = self._rows + max(_CHECK_ROWS_MIN, min(room, often_enough))

    def relieve(self) -> Iterator[None]:
        """Bring the groups to disk where they do not fit into memory, slice by slice."""
        if self._over:
            yield from self._spill()

    def _spill(self) -> Iterator[None]:
        if self._files is None:
            self._files = _Files(self._folder, self._depth)
        self.spilling.spills += 1
        self.spilling.records += len(self.groups)
        waiting = iter(self.groups.items())
        self.groups = {}
        self._key_bytes = 0
        self._rows = 0
        self._next_check = _CHECK_ROWS_MIN
        self._over = False
        while slice := dict(islice(waiting, _SLICE_GROUPS)):
            self.spilling.bytes += self._files.write(slice)
            yield None
