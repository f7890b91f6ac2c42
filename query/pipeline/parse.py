"""Parses pipelines: the table of stages, what may stand where, and the plan of the whole."""

from dataclasses import dataclass
from typing import Any, Final

from ...common import errors
from ...common.errors import Location, MaxSubPipelineDepthExceeded, SearchNotEnabled, TypeMismatch
from ...common.values import Document, type_name
from ..match.base import holds
from ..match.text import TextMatch
from ..plan.nodes import PlanNode
from . import bucket, densify, facet, geo_near, group, join, lookup, order, rank_fusion, reshape, windows
from .base import Fields, PipelineContext, Stage, StageParser
from .optimize import optimized
from .order import Limit, Skip, Sort
from .reshape import Match, Reshape

__all__ = ["STAGES", "Pipeline", "PipelineContext", "parse_pipeline"]

STAGES_MAX: Final = 1000
DEPTH_MAX: Final = 20

STAGES: Final[dict[str, StageParser]] = {
    **bucket.STAGES,
    **densify.STAGES,
    **facet.STAGES,
    **geo_near.STAGES,
    **group.STAGES,
    **join.STAGES,
    **lookup.STAGES,
    **order.STAGES,
    **rank_fusion.STAGES,
    **reshape.STAGES,
    **windows.STAGES,
}
"""Every stage, by name; layers above add theirs (`register`)."""

_KNOWN_ELSEWHERE: Final = frozenset(
    {
        "$changeStreamSplitLargeEvent", "$collStats", "$currentOp",
        "$indexStats", "$listLocalSessions", "$listSampledQueries", "$listSessions",
        "$merge", "$out", "$planCacheStats", "$scoreFusion",
    }
)  # fmt: skip
_SEARCH: Final = frozenset({"$search", "$searchMeta", "$vectorSearch", "$listSearchIndexes"})


def register(name: str, parser: StageParser) -> None:
    """Add a stage of a layer above (`$_internalUnpackBucket`, `$collStats` …)."""
    STAGES[name] = parser


@dataclass(slots=True, eq=False)
class Leading:
    """What stands at the beginning of a pipeline and can be asked of the source itself."""

    filters: list[Match]
    sort: Sort | None = None
    skip: int = 0
    limit: int | None = None


class Pipeline:
    """Parsed stages."""

    def __init__(self, stages: list[Stage]) -> None:
        self.stages = stages

    def node(self, source: PlanNode) -> PlanNode:
        """The plan of all stages over `source`."""
        for stage in self.stages:
            source = stage.node(source)
        return source

    def nodes(self, source: PlanNode) -> list[tuple[Stage, PlanNode]]:
        """Each stage with its plan node, the first over `source`."""
        made = []
        for stage in self.stages:
            source = stage.node(source)
            made.append((stage, source))
        return made

    def serialize(self) -> list[Document]:
        """The stages in the normal form that explain shows."""
        return [stage.serialize() for stage in self.stages]

    def required_fields(self) -> Fields:
        """The paths of the source's documents that decide the result; None where all do."""
        wanted: Fields = None
        for stage in reversed(self.stages):
            wanted = stage.needs(wanted)
        return wanted

    def optimized(self) -> "Pipeline":
        """The same result with fewer or cheaper stages (`optimize`)."""
        return Pipeline(optimized(self.stages))

    def split_leading(self) -> tuple[Leading, "Pipeline"]:
        """The filters, then order, skip and limit at the beginning, and the rest of the pipeline."""
        leading = Leading([])
        position = 0
        while position < len(self.stages) and isinstance(self.stages[position], Match):
            stage = self.stages[position]
            assert isinstance(stage, Match)
            leading.filters.append(stage)
            position += 1
        if position < len(self.stages) and isinstance(self.stages[position], Sort):
            stage = self.stages[position]
            assert isinstance(stage, Sort)
            leading.sort, leading.limit = stage, stage.limit
            position += 1
        if leading.limit is None and position < len(self.stages):
            following = self.stages[position]
            if isinstance(following, Skip):
                leading.skip = following.amount
                position += 1
        if leading.limit is None and position < len(self.stages):
            following = self.stages[position]
            if isinstance(following, Limit):
                leading.limit = following.amount
                position += 1
        return leading, Pipeline(self.stages[position:])


def parse_pipeline(pipeline: Any, context: PipelineContext) -> Pipeline:
    """Parse an array of stages.

    Raises:
        TypeMismatch: it is no array of documents.
        Location: 40323, 40324, 7749501 for a stage with several fields, an unknown one, or too many.
    """
    if not isinstance(pipeline, list):
        raise TypeMismatch(f"'pipeline' option must be specified as an array, but got {type_name(pipeline)}")
    if len(pipeline) > STAGES_MAX:
        raise Location(7749501, f"Pipeline length must be no longer than {STAGES_MAX} stages")
    if context.depth > DEPTH_MAX:
        raise MaxSubPipelineDepthExceeded("Maximum number of nested sub-pipelines exceeded")
    stages: list[Stage] = []
    for position, spec in enumerate(pipeline):
        if not isinstance(spec, dict):
            raise TypeMismatch("Each element of the 'pipeline' array must be an object")
        if len(spec) != 1:
            raise Location(40323, "A pipeline stage specification object must contain exactly one field.")
        name, operand = next(iter(spec.items()))
        stage = _stage(name, operand, context)
        if position and isinstance(stage, rank_fusion.RankFusion):
            raise Location(10170100, "$rankFusion must be the first stage of a pipeline")
        if stage.is_source and position:
            raise Location(40602, f"{name} is only valid as the first stage in a pipeline.")
        if isinstance(stage, geo_near.GeoNear):
            stages = [
                before for before in stages if not (isinstance(before, Match) and before.matcher.serialize() == {})
            ]
        if stages and isinstance(stage, geo_near.GeoNear):
            raise Location(40603, "$geoNear was not the first stage in the pipeline.")
        if position and isinstance(stage, Match) and holds(stage.matcher, TextMatch):
            raise Location(17313, "$match with $text is only allowed as the first pipeline stage")
        if stage.must_be_last and position + 1 < len(pipeline):
            raise Location(40601, f"{name} can only be the final stage in the pipeline")
        stages.append(stage)
    _check_metadata(stages)
    return Pipeline(stages)


_KINDS_OF_STAGES: Final = {
    "textScore": "text score",
    "geoNearDistance": "geo near distance",
    "scoreDetails": "scoreDetails",
}


def _check_metadata(stages: list[Stage]) -> None:
    """Refuse to show metadata that no row will have."""
    first = stages[0] if stages else None
    given = {
        "textScore": not isinstance(first, (Match, Reshape, Sort))
        or (isinstance(first, Match) and holds(first.matcher, TextMatch)),
        "geoNearDistance": isinstance(first, geo_near.GeoNear) or not isinstance(first, (Match, Reshape, Sort)),
        "scoreDetails": not isinstance(first, rank_fusion.RankFusion) or first.details,
    }
    for stage in stages:
        for kind in sorted(stage.metadata_read()) if isinstance(stage, Reshape) else ():
            if not given.get(kind, True):
                raise Location(40218, f"query requires {_KINDS_OF_STAGES[kind]} metadata, but it is not available")


def _stage(name: str, operand: Any, context: PipelineContext) -> Stage:
    parser = STAGES.get(name)
    if parser is not None:
        return parser(operand, context)
    if name == "$changeStream":
        raise Location(40573, "The $changeStream stage is only supported on replica sets")
    if name in _SEARCH:
        raise SearchNotEnabled(f"Using {name} requires additional configuration.")
    if name in _KNOWN_ELSEWHERE:
        raise errors.NotImplemented(f"the stage {name} is not supported")
    raise Location(40324, f"Unrecognized pipeline stage name: '{name}'")
