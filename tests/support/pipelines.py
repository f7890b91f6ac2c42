"""Expressions and pipelines run by themselves: no server, no storage."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from bucketd.catalog.namespaces import Namespace
from bucketd.common.values import MISSING, Document
from bucketd.query.expression.parse import ParseContext, parse_expression
from bucketd.query.pipeline.base import PipelineContext
from bucketd.query.pipeline.parse import Pipeline, parse_pipeline
from bucketd.query.plan.batches import Batch, RowBatch
from bucketd.query.plan.nodes import PlanNode, Run
from bucketd.storage.engine import Snapshot

MISSING_VALUE = MISSING


class Rows(PlanNode):
    """Given documents, a few at a time, with breathing points between them."""

    stage = "ROWS"

    def __init__(self, documents: Sequence[Document], size: int = 3) -> None:
        super().__init__()
        self._documents = list(documents)
        self._size = size

    def batches(self, run: Run) -> Iterator[Batch | None]:
        for start in range(0, len(self._documents), self._size):
            yield None
            yield RowBatch(documents=self._documents[start : start + self._size])


def evaluated(spec: Any, document: Document | None = None, **variables: Any) -> Any:
    """The value of an expression."""
    context = ParseContext(variables=frozenset(variables))
    return parse_expression(spec, context).evaluate(document or {}, variables)


class Collections:
    """Other collections, for the stages that read them (`SourceProvider`)."""

    def __init__(self, documents: Mapping[str, Sequence[Document]], *, optimized: bool) -> None:
        self._documents = documents
        self._optimized = optimized

    def plan(self, namespace: Namespace, pipeline: list[Document], context: PipelineContext) -> PlanNode:
        made = parse_pipeline(pipeline, context)
        return (made.optimized() if self._optimized else made).node(Rows(self._documents[namespace.collection]))

    def system(self, stage: str, spec: Any, context: PipelineContext) -> PlanNode:
        raise NotImplementedError


def parsed(
    stages: list[Document], others: Mapping[str, Sequence[Document]] | None = None, *, optimized: bool = True
) -> Pipeline:
    sources = Collections(others or {}, optimized=optimized)
    return parse_pipeline(stages, PipelineContext(namespace=Namespace("db", "rows"), sources=sources))


def run_of(**options: Any) -> Run:
    """A run without a store."""
    return Run(snapshot=cast(Snapshot, None), **options)


def ran(
    stages: list[Document],
    documents: Sequence[Document],
    *,
    optimized: bool = True,
    others: Mapping[str, Sequence[Document]] | None = None,
    **options: Any,
) -> list[Any]:
    """What a pipeline makes of documents."""
    pipeline = parsed(stages, others, optimized=optimized)
    node = (pipeline.optimized() if optimized else pipeline).node(Rows(documents))
    run = run_of(**options)
    return [row for batch in node.batches(run) if batch is not None for row in batch.documents()]
