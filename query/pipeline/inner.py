"""What stages with pipelines of their own share: which stages may stand in them, and how they run within the outer run."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from bson import Regex

from ...catalog.namespaces import Namespace
from ...common.errors import InvalidNamespace, NotImplemented, TypeMismatch, error_for
from ...common.values import Document, type_name
from ..plan.batches import Batch
from ..plan.nodes import PlanNode, Run
from .base import PipelineContext, SourceProvider

if TYPE_CHECKING:
    from .parse import Pipeline

NEVER_INSIDE: Final = ("$changeStreamSplitLargeEvent",)
"""What no pipeline within another one may hold."""

_WRITERS: Final = ("$out", "$merge")
_SESSIONS: Final = ("$listLocalSessions", "$listSessions")


def check_stages(pipeline: Any, refused: Sequence[str], code: int, outer: str) -> None:
    """Refuse stages that may not stand within another one.

    Raises:
        TypeMismatch: the pipeline is no array.
        MongoError: with the given code, for a stage that is refused.
    """
    if not isinstance(pipeline, list):
        raise TypeMismatch(f"'pipeline' option must be specified as an array, but got {type_name(pipeline)}")
    for stage in pipeline:
        name = next(iter(stage), "") if isinstance(stage, dict) else ""
        if name in refused or name in _WRITERS:
            raise error_for(code, f"{name} is not allowed within a {outer} stage")
        if name in _SESSIONS:
            raise InvalidNamespace(
                f"{name} must be run against the admin database with {{aggregate: 1}}, or a config collection"
            )
        inner = stage.get(name) if isinstance(stage, dict) else None
        if outer == "$facet" and isinstance(inner, dict) and isinstance(inner.get("pipeline"), list):
            # What the innermost stage refuses is told with its own number.
            own = {"$lookup": 51047, "$unionWith": 31441}.get(name)
            if own is not None:
                check_stages(inner["pipeline"], NEVER_INSIDE, own, name)
            check_stages(inner["pipeline"], refused, code, outer)


def parsed(pipeline: list[Document], context: PipelineContext) -> "Pipeline":
    """A pipeline within a stage, parsed."""
    # The table of stages holds those that have pipelines of their own.
    from .parse import parse_pipeline

    return parse_pipeline(pipeline, context)


def sources_of(context: PipelineContext) -> SourceProvider:
    """Who plans the reading of other collections.

    Raises:
        NotImplemented: nobody does, here.
    """
    if context.sources is None:
        raise NotImplemented("other collections cannot be read here")
    return context.sources


def target(context: PipelineContext, name: Any) -> Namespace:
    """The namespace of a collection of the same database.

    Raises:
        InvalidNamespace: no collection can have the name.
    """
    if not name or name.startswith(".") or "\0" in name:
        raise InvalidNamespace(f"Invalid namespace specified: {context.namespace.database}.{name}")
    return Namespace(context.namespace.database, name)


def run_inner(node: PlanNode, run: Run, variables: dict[str, Any]) -> Iterator[Batch | None]:
    """The batches of a plan within a step of another plan: it sees the snapshot of the moment, and its own variables."""
    inner = replace(run, variables=variables)
    batches = node.batches(inner)
    while True:
        # The executor may have renewed the snapshot since the last breathing point.
        inner.snapshot = run.snapshot
        try:
            yield next(batches)
        except StopIteration:
            return


def inner_batches(
    context: PipelineContext,
    namespace: Namespace,
    pipeline: list[Document],
    run: Run,
    variables: dict[str, Any],
    note: Callable[[PlanNode], None] | None = None,
) -> Iterator[Batch | None]:
    """The batches of a pipeline on another collection; None is a breathing point. `note` is told the plan that has run."""
    known = {**context.variables, **run.variables, **variables}
    given = replace(context, namespace=namespace, variables=known)
    node = sources_of(context).plan(namespace, pipeline, given)
    try:
        yield from run_inner(node, run, known)
    finally:
        if note is not None:
            note(node)


def inner_documents(
    context: PipelineContext, namespace: Namespace, pipeline: list[Document], run: Run, variables: dict[str, Any]
) -> Iterator[Document | None]:
    """The rows of a pipeline on another collection; None is a breathing point."""
    for batch in inner_batches(context, namespace, pipeline, run, variables):
        if batch is None:
            yield None
        else:
            yield from batch.documents()


def equal_to_any(path: str, values: Sequence[Any]) -> Document:
    """A filter for documents in which a path has one of the values; a regular expression stands for itself."""
    plain = [value for value in values if not isinstance(value, Regex)]
    if len(plain) == len(values):
        return {path: {"$in": plain}}
    return {"$or": [{path: {"$in": plain}}, *({path: {"$eq": value}} for value in values if isinstance(value, Regex))]}
