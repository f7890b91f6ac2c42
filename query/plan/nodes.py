"""What every node of a plan is, and the run that carries it.

A node is a generator of batches over its inputs. It may yield `None` at any time: a breathing point, at which the executor
may let other clients run and renew the snapshot. Nodes therefore keep nothing of a snapshot across a yield: a scan
remembers its last key and goes on from there (that is also how a cursor sleeps between two batches).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import wraps
from time import perf_counter_ns
from typing import Any

from ...common.values import Document
from ...storage.engine import Snapshot
from .batches import Batch


@dataclass(slots=True)
class Run:
    """One execution of a plan: what its nodes need and may use up.

    `snapshot` is set by the executor before each step, and only valid until the next yield. `variables` are the values of
    `let` and of system variables (`NOW`, `CLUSTER_TIME`, `USER_ROLES`), without the `$$`.
    """

    snapshot: Snapshot
    variables: dict[str, Any] = field(default_factory=dict)
    allow_disk_use: bool = True
    memory_bytes_max: int = 100 * 1024 * 1024
    spill_folder: str | None = None
    batch_rows: int = 512
    rows_wanted: int = 512
    """How many rows are asked for in this turn: a scan reads little more before it knows that they do not match."""
    turn: int = 0
    """Moves with every batch that a client asks for."""
    caught_up: bool = False
    """Set by a scan that waits at the end of its collection for more to come in."""
    sort_bytes: int | None = None
    group_bytes: int | None = None
    facet_bytes: int | None = None

    @property
    def sort_bytes_max(self) -> int:
        """How much a sort may hold."""
        return self.memory_bytes_max if self.sort_bytes is None else self.sort_bytes

    @property
    def facet_bytes_max(self) -> int:
        """How much of its input a `$facet` may hold before it goes to disk."""
        return self.memory_bytes_max if self.facet_bytes is None else self.facet_bytes

    @property
    def group_bytes_max(self) -> int:
        """How much the table of a `$group` may hold."""
        return self.memory_bytes_max if self.group_bytes is None else self.group_bytes


@dataclass(slots=True)
class NodeStats:
    """What a node did, for `executionStats`. Times are nanoseconds."""

    advanced: int = 0
    works: int = 0
    keys_examined: int = 0
    docs_examined: int = 0
    time_ns: int = 0
    eof: bool = False
    seeks: int = 0
    extra: Document = field(default_factory=dict)


class PlanNode(ABC):
    """A step of a plan: takes batches from its inputs and yields batches."""

    stage: str

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "batches" in cls.__dict__:
            setattr(cls, "batches", _timed(cls.__dict__["batches"]))  # noqa: B010 (a plain assignment is refused)

    def __init__(self, *inputs: "PlanNode") -> None:
        self.inputs: tuple[PlanNode, ...] = inputs
        self.stats = NodeStats()

    @abstractmethod
    def batches(self, run: Run) -> Iterator[Batch | None]:
        """Yield the rows, batch after batch; `None` is a breathing point. Called once."""

    def describe(self) -> Document:
        """The fields of this node in `winningPlan`, `stage` and inputs apart (filter, keyPattern, indexBounds …)."""
        return {}

    def describe_stats(self) -> Document:
        """The fields of this node in `executionStages` beyond the common ones."""
        return {}


BatchSource = Callable[[PlanNode, Run], Iterator[Batch | None]]


def _timed(batches: BatchSource) -> BatchSource:
    """The same, adding up the time that the node and its inputs take."""

    @wraps(batches)
    def timed(node: PlanNode, run: Run) -> Iterator[Batch | None]:
        stats = node.stats
        rows = iter(batches(node, run))
        try:
            while True:
                started = perf_counter_ns()
                try:
                    batch = next(rows)
                except StopIteration:
                    stats.eof = True
                    return
                finally:
                    stats.time_ns += perf_counter_ns() - started
                yield batch
        finally:
            close = getattr(rows, "close", None)
            if close is not None:
                close()

    return timed


def plan_document(node: PlanNode) -> Document:
    """A plan as `winningPlan` shows it: stage, its fields, the plans it reads from."""
    shown: Document = {"stage": node.stage, **node.describe()}
    return with_inputs(shown, [plan_document(below) for below in node.inputs])


def with_inputs(shown: Document, inputs: list[Document]) -> Document:
    """A stage with those that it reads from."""
    if len(inputs) == 1:
        return {**shown, "inputStage": inputs[0]}
    return {**shown, "inputStages": inputs} if inputs else shown
