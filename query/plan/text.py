"""The node of text searches: what was found by its terms is scored, and tested for phrases and negations."""

from collections.abc import Iterator, Sequence
from typing import Final

from ...catalog.collections import Collection
from ...catalog.index_makers import text_key_maker
from ...catalog.index_specs import IndexSpec
from ...catalog.text_options import TEXT_FIELD
from ...common.errors import IndexNotFound, NoQueryExecutionPlans
from ...common.values import Document, encode
from ...kernels import TextSearch, key_string
from ..match.base import AlwaysTrue, MatchNode
from ..match.text import TextMatch
from .batches import Batch, Metadata, RowBatch
from .bounds import BoundsMaker, FieldBounds, Interval, KeyShape
from .index_scans import IndexScan
from .index_scans import Or as OrNode
from .nodes import PlanNode, Run
from .scans import Eof, Fetch

_VERSION: Final = 3


def text_index(collection: Collection | None) -> IndexSpec:
    """The text index of a collection.

    Raises:
        IndexNotFound: it has none.
        NoQueryExecutionPlans: it is hidden.
    """
    for index in () if collection is None else collection.indexes:
        if index.kind == "text" and not index.building:
            if index.hidden:
                raise NoQueryExecutionPlans("error processing query: the text index is hidden")
            return index
    raise IndexNotFound("text index required for $text query")


def text_plan(
    collection: Collection, index: IndexSpec, match: TextMatch, rest: Sequence[MatchNode], rest_node: MatchNode
) -> PlanNode:
    """The plan of a text search with other predicates beside it.

    Raises:
        NoQueryExecutionPlans: a field before the texts is not bound to one value.
    """
    maker = text_key_maker(index)
    language = match.language or str(index.document["default_language"])
    search = TextSearch(maker, match.search, language, match.case_sensitive, match.diacritic_sensitive)
    scans: list[PlanNode] = []
    for term in search.terms or [""]:
        bounds = _TermBounds(index, term).make(rest)
        position = index.paths.index(TEXT_FIELD)
        if any(not (field.points and len(field.intervals) == 1) for field in bounds.fields[:position]):
            raise NoQueryExecutionPlans(
                f"error processing query: ns={collection.namespace} :: caused by :: failed to use text index to satisfy "
                "$text query (if text index is compound, are equality predicates given for all prefix fields?)"
            )
        scans.append(IndexScan(collection, index, bounds))
    source: PlanNode = Eof()
    if search.terms:
        source = scans[0] if len(scans) == 1 else OrNode(*scans)
        source = Fetch(source, collection, None if isinstance(rest_node, AlwaysTrue) else rest_node)
    return TextScan(source, index, search, match)


class TextScan(PlanNode):
    """The documents that fit a search, each with its score."""

    stage = "TEXT_MATCH"

    def __init__(self, source: PlanNode, index: IndexSpec, search: TextSearch, match: TextMatch) -> None:
        super().__init__(source)
        self.index = index
        self.search = search
        self.match = match

    def batches(self, run: Run) -> Iterator[Batch | None]:
        """See `PlanNode.batches`."""
        for batch in self.inputs[0].batches(run):
            if batch is None:
                yield None
                continue
            raws, keys = batch.raws(), batch.record_keys or []
            scores = self.search.scores(raws)
            kept = [position for position, score in enumerate(scores) if score is not None]
            metadata: list[Metadata] = [{"textScore": scores[position]} for position in kept]
            self.stats.advanced += len(kept)
            if kept:
                yield RowBatch(
                    raws=[raws[position] for position in kept],
                    metadata=metadata,
                    record_keys=[keys[position] for position in kept],
                )
        self.stats.eof = True

    def describe(self) -> Document:
        """See `PlanNode.describe`."""
        search = self.search
        return {
            "indexPrefix": {},
            "indexName": self.index.name,
            "parsedTextQuery": {
                "terms": search.terms,
                "negatedTerms": search.negated,
                "phrases": search.phrases,
                "negatedPhrases": search.negated_phrases,
            },
            "textIndexVersion": self.index.document.get("textIndexVersion", _VERSION),
        }

    def describe_stats(self) -> Document:
        """See `PlanNode.describe_stats`."""
        return {"docsRejected": self.inputs[0].stats.advanced - self.stats.advanced}


class _TermBounds(BoundsMaker):
    """Bounds of a text index for one term."""

    def __init__(self, index: IndexSpec, term: str) -> None:
        super().__init__(index, None, _shape(index))
        self._term = term

    def field_bounds(self, position: int, path: str, predicates: Sequence[MatchNode], *, multikey: bool) -> FieldBounds:
        """See `BoundsMaker.field_bounds`."""
        if path != TEXT_FIELD:
            return super().field_bounds(position, path, predicates, multikey=multikey)
        key = key_string(encode({"": self._term}))
        text = f'["{self._term}", "{self._term}"]'
        return FieldBounds([Interval(key, key, True, True, text, text)])


def _shape(index: IndexSpec) -> KeyShape:
    """Fields up to the term: nothing behind it is kept in the order of its values."""
    paths = index.paths
    stop = paths.index(TEXT_FIELD) + 1
    return KeyShape(paths[:stop], index.descending[:stop], ((),) * stop, (False,) * stop, index.key, sparse=False)
