"""Filters of scans, row by row on raw bytes where that tells, decoded where it does not."""

from collections.abc import Callable
from typing import Final

from ...common.values import Document, decode
from ...kernels import RawFilter
from ..match.base import MatchNode, Variables
from ..match.raw import raw_filter
from .batches import RowBatch

_UNSURE: Final = 2


class Sieve:
    """Judges rows by their bytes, as far as that goes; only what is left over is decoded."""

    def __init__(self, matcher: MatchNode) -> None:
        found = raw_filter(matcher)
        self.useful = found is not None
        """Whether bytes tell anything."""
        self._filter: RawFilter | None = None if found is None else found[0]
        self._whole = found is not None and found[1]

    def keep(
        self, batch: RowBatch, compiled: Callable[[Variables], Callable[[Document], bool]], variables: Variables
    ) -> RowBatch:
        """The rows that match; `compiled` gives the predicate for those whose bytes do not tell."""
        assert self._filter is not None
        raws = batch.raws()
        verdicts = self._filter.verdicts(raws)
        kept = [position for position, verdict in enumerate(verdicts) if verdict]
        if not self._whole:
            # What is left is decoded anyway: whoever takes the rows may want them so.
            left = batch if len(kept) == len(batch) else batch.select(kept)
            matches = compiled(variables)
            passed = [position for position, document in enumerate(left.documents()) if matches(document)]
            return left if len(passed) == len(left) else left.select(passed)
        if _UNSURE in verdicts:
            matches = compiled(variables)
            kept = [row for row in kept if verdicts[row] != _UNSURE or matches(decode(raws[row]))]
        return batch if len(kept) == len(batch) else batch.select(kept)
