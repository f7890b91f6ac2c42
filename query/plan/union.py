"""The node that puts the rows of several plans on one collection together."""

from collections.abc import Iterator, Sequence

from ...common.values import Document
from ..match.base import AlwaysTrue, MatchNode
from .batches import Batch, Metadata, RowBatch
from .nodes import PlanNode, Run


class Union(PlanNode):
    """The rows of several plans that match, each record once."""

    stage = "OR"

    def __init__(self, sources: Sequence[PlanNode], matcher: MatchNode) -> None:
        super().__init__(*sources)
        self.matcher = None if isinstance(matcher, AlwaysTrue) else matcher

    def batches(self, run: Run) -> Iterator[Batch | None]:
        """See `PlanNode.batches`."""
        matches = None if self.matcher is None else self.matcher.compile(run.variables)
        seen: set[bytes] = set()
        for source in self.inputs:
            for batch in source.batches(run):
                if batch is None:
                    yield None
                    continue
                keys, documents = batch.record_keys or [], batch.documents()
                kept = [
                    position
                    for position, key in enumerate(keys)
                    if key not in seen and (matches is None or matches(documents[position]))
                ]
                seen.update(keys)
                if not kept:
                    yield None
                    continue
                raws = batch.raws()
                metadata: list[Metadata] = batch.metadata or [{} for _ in keys]
                self.stats.advanced += len(kept)
                yield RowBatch(
                    raws=[raws[position] for position in kept],
                    metadata=[metadata[position] for position in kept],
                    record_keys=[keys[position] for position in kept],
                )
        self.stats.eof = True

    def describe(self) -> Document:
        """See `PlanNode.describe`."""
        return {} if self.matcher is None else {"filter": self.matcher.serialize()}
