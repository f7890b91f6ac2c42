"""What every stage of a pipeline is: parsed once, printable, open about what it reads, and a plan node over its source."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

from ...catalog.namespaces import Namespace
from ...common.collation import Collation
from ...common.values import Document
from ..expression.base import ParseContext
from ..plan.batches import Batch
from ..plan.nodes import PlanNode, Run

Fields = frozenset[str] | None
"""Paths of documents; None stands for all of them."""


Rename = Callable[[str], str | None]
"""The path that a path was before a stage; None where it was none, or nobody can tell."""


class SourceProvider(Protocol):
    """Who makes plans for other collections, and lets `$out` and `$merge` write."""

    def plan(self, namespace: Namespace, pipeline: list[Document], context: "PipelineContext") -> PlanNode:
        """The plan of a pipeline on a collection, view or time-series collection."""

    def system(self, stage: str, spec: Any, context: "PipelineContext") -> PlanNode:
        """The plan of a first stage that reads the server's own state (`$collStats`, `$indexStats`, `$currentOp` …)."""


@dataclass(frozen=True, kw_only=True)
class PipelineContext:
    """What is known where a pipeline is parsed."""

    namespace: Namespace
    collation: Collation | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)
    """Values of `let`; system variables are always defined."""
    sources: SourceProvider | None = None
    nested: str | None = None
    """The stage that this pipeline is an operand of."""
    depth: int = 0

    @property
    def expressions(self) -> ParseContext:
        """The same for expressions."""
        return ParseContext(collator=self.collation, variables=frozenset(self.variables))

    def inside(
        self, stage: str, namespace: Namespace | None = None, variables: Mapping[str, Any] | None = None
    ) -> "PipelineContext":
        """The context of a pipeline within a stage of this one."""
        return replace(
            self,
            namespace=namespace or self.namespace,
            nested=stage,
            depth=self.depth + 1,
            variables={**self.variables, **(variables or {})},
        )


class Stage(ABC):
    """One stage."""

    name: ClassVar[str]
    is_source: ClassVar[bool] = False
    """Begins a pipeline and takes no input."""
    must_be_last: ClassVar[bool] = False
    collectionless: ClassVar[bool] = False
    """Begins a pipeline that reads no collection."""

    @abstractmethod
    def serialize(self) -> Document:
        """The stage in the normal form that explain shows."""

    def explained(self) -> list[Document]:
        """What explain shows of it: itself, or the stages that it stands for."""
        return [self.serialize()]

    @abstractmethod
    def node(self, source: PlanNode) -> PlanNode:
        """The plan node that runs the stage over `source`."""

    def needs(self, wanted: Fields) -> Fields:
        """What it reads of its input when `wanted` is read of its output."""
        return None


StageParser = Callable[[Any, PipelineContext], Stage]


class StageNode(PlanNode):
    """A plan node that runs one stage; its name in explain is that of the stage."""

    def __init__(self, stage: Stage, *inputs: PlanNode) -> None:
        super().__init__(*inputs)
        self.stage = stage.name
        self.of = stage

    def describe(self) -> Document:
        """See `PlanNode.describe`."""
        return self.of.serialize()


class MapNode(StageNode):
    """Runs a function from batch to batch; None leaves a batch out."""

    def __init__(self, stage: Stage, source: PlanNode, function: Callable[[Batch, Run], Batch | None]) -> None:
        super().__init__(stage, source)
        self._function = function

    def batches(self, run: Run) -> Iterator[Batch | None]:
        """See `PlanNode.batches`."""
        for batch in self.inputs[0].batches(run):
            made = None if batch is None else self._function(batch, run)
            if made is not None:
                self.stats.advanced += len(made)
            yield made if made is not None and len(made) else None
        self.stats.eof = True


def joined(left: Fields, right: Fields) -> Fields:
    """The paths of both."""
    return None if left is None or right is None else left | right
