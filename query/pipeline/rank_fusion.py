"""`$rankFusion`: several rankings of a collection made into one, by the sum of their reciprocal ranks."""

from collections.abc import Iterator
from typing import Any, ClassVar, Final

from bson import Decimal128

from ...common.errors import (
    BadValue,
    ExceededMemoryLimit,
    FailedToParse,
    IDLFailedToParse,
    IDLUnknownField,
    Location,
    TypeMismatch,
)
from ...common.numbers import is_number
from ...common.ordering import order_key
from ...common.values import MISSING, Document, encode, type_name
from ..plan.batches import Batch, Metadata, RowBatch
from ..plan.nodes import PlanNode, Run
from .base import PipelineContext, Stage, StageNode, StageParser
from .inner import parsed, run_inner, sources_of
from .order import Sample, Sort

_RANK_CONSTANT: Final = 60
_SELECTING: Final = frozenset({"$geoNear", "$limit", "$match", "$sample", "$skip", "$sort"})
_RANKED: Final = frozenset({"$geoNear", "$search", "$vectorSearch"})
_HYBRID: Final = frozenset({"$rankFusion", "$scoreFusion"})
_STAGES_MAX: Final = 1000
_DESCRIPTION: Final = (
    "value output by reciprocal rank fusion algorithm, computed as sum of (weight * (1 / (60 + rank))) across input "
    "pipelines from which this document is output, from:"
)


class RankFusion(Stage):
    """`$rankFusion`."""

    name: ClassVar[str] = "$rankFusion"
    is_source: ClassVar[bool] = True

    def __init__(
        self, spec: Document, pipelines: dict[str, list[Document]], weights: dict[str, float], context: PipelineContext
    ) -> None:
        self.spec = spec
        self.pipelines = pipelines
        self.weights = weights
        self.context = context
        self.details = bool(spec.get("scoreDetails"))

    @classmethod
    def parse(cls, spec: Any, context: PipelineContext) -> "RankFusion":
        """Parse the operand."""
        if not isinstance(spec, dict):
            raise FailedToParse(f"$rankFusion must take a nested object but found: {type_name(spec)}")
        if context.namespace.is_buckets:
            raise Location(10557301, "$rankFusion is unsupported on timeseries collections")
        _check_names("$rankFusion", spec, ("input", "combination", "scoreDetails"))
        pipelines = _object("$rankFusion.input", _object("$rankFusion", spec, "input", ("pipelines",)), "pipelines")
        details = spec.get("scoreDetails")
        if details is not None and not isinstance(details, bool):
            raise _wrong_type("$rankFusion.scoreDetails", details, "bool")
        weights: Document = {}
        if spec.get("combination") is not None:
            combination = _object("$rankFusion", spec, "combination", ("weights",))
            weights = _object("$rankFusion.combination", combination, "weights")
        if not pipelines:
            raise BadValue("$rankFusion input must have at least one pipeline")
        for name, pipeline in pipelines.items():
            _check_pipeline(name, pipeline, context)
        return cls(spec, pipelines, _weights(weights, pipelines), context)

    def serialize(self) -> Document:
        """See `Stage.serialize`."""
        return {self.name: self.spec}

    def node(self, source: PlanNode) -> PlanNode:
        """See `Stage.node`."""
        return _FusionNode(self)


def _wrong_type(path: str, value: Any, expected: str) -> TypeMismatch:
    return TypeMismatch(f"BSON field '{path}' is the wrong type '{type_name(value)}', expected type '{expected}'")


def _check_names(path: str, document: Document, known: tuple[str, ...]) -> None:
    for name in document:
        if name not in known:
            raise IDLUnknownField(f"BSON field '{path}.{name}' is an unknown field.")


def _object(path: str, document: Document, name: str, known: tuple[str, ...] | None = None) -> Document:
    value = document.get(name)
    if value is None:
        raise IDLFailedToParse(f"BSON field '{path}.{name}' is missing but a required field")
    if not isinstance(value, dict):
        raise _wrong_type(f"{path}.{name}", value, "object")
    if known is not None:
        _check_names(f"{path}.{name}", value, known)
    return value


def _check_pipeline(name: str, pipeline: Any, context: PipelineContext) -> None:
    """Refuse a pipeline that does not choose and order documents, and nothing else."""
    if not name:
        raise Location(15998, "FieldPath field names may not be empty strings.")
    if name.startswith("$"):
        raise Location(16410, f"FieldPath field names may not start with '$': {name}")
    if "." in name:
        raise Location(16412, f"FieldPath field names may not contain '.': {name}")
    path = f"$rankFusion.input.pipelines.{name}"
    if not isinstance(pipeline, list):
        raise _wrong_type(path, pipeline, "array")
    for stage in pipeline:
        if not isinstance(stage, dict):
            raise _wrong_type(path, stage, "object")
    if not pipeline:
        raise Location(9834300, f"Input pipeline '{name}' of $rankFusion cannot be empty")
    if len(pipeline) > _STAGES_MAX:
        raise Location(7749501, f"Pipeline length must be no longer than {_STAGES_MAX} stages")
    names = [next(iter(stage), "") for stage in pipeline]
    if names[0] in _HYBRID:
        raise Location(10473002, f"{names[0]} cannot stand in an input pipeline of $rankFusion")
    for stage_name in names[1:]:
        if stage_name in _HYBRID:
            raise Location(10170100, f"{stage_name} must be the first stage of a pipeline")
    for stage, stage_name in zip(pipeline, names, strict=True):
        if stage_name == "$geoNear":
            changes = isinstance(stage[stage_name], dict) and bool(
                {"distanceField", "includeLocs"} & set(stage[stage_name])
            )
        else:
            parsed([stage] if stage_name not in ("$out", "$merge") else [], context.inside("$rankFusion"))
            changes = stage_name not in _SELECTING
        if changes:
            raise Location(9191103, f"Input pipelines of $rankFusion only take stages that select: {stage_name}")
    if names[0] not in _RANKED and "$sort" not in names:
        raise Location(
            9191100, f"Input pipeline '{name}' of $rankFusion must begin with a ranked stage or hold a $sort"
        )


def _weights(given: Document, pipelines: Document) -> dict[str, float]:
    if len(given) > len(pipelines):
        raise Location(9460301, "$rankFusion has more weights than input pipelines")
    weights = dict.fromkeys(pipelines, 1.0)
    for name, value in given.items():
        if name not in pipelines:
            raise Location(9967500, f"$rankFusion has a weight for '{name}', which is no input pipeline")
        if not is_number(value):
            raise Location(13118, f"A weight of $rankFusion must be a number, found: {type_name(value)}")
        weight = float(str(value)) if isinstance(value, Decimal128) else float(value)
        if not weight >= 0:
            raise Location(9460300, f"A weight of $rankFusion must not be negative: {value}")
        weights[name] = weight
    return weights


class _FusionNode(StageNode):
    def __init__(self, stage: RankFusion) -> None:
        super().__init__(stage)

    def batches(self, run: Run) -> Iterator[Batch | None]:
        stage = self.of
        assert isinstance(stage, RankFusion)
        documents: dict[Any, Document] = {}
        ranks: dict[str, dict[Any, int]] = {}
        size = 0
        for name, pipeline in stage.pipelines.items():
            own: dict[Any, int] = {}
            for ranked in self._ranked(stage, pipeline, run):
                if ranked is None:
                    yield None
                    continue
                rank, document = ranked
                key = order_key(document.get("_id", MISSING))
                own[key] = rank
                if key not in documents:
                    documents[key] = document
                    size += 3 * len(encode(document))
                if size > run.memory_bytes_max:
                    raise ExceededMemoryLimit(f"$rankFusion exceeded its memory limit of {run.memory_bytes_max} bytes")
            ranks[name] = own
        scores = {key: self._score(stage, ranks, key) for key in documents}
        order = sorted(documents, key=lambda key: (-scores[key], key))
        for start in range(0, len(order), run.batch_rows):
            keys = order[start : start + run.batch_rows]
            self.stats.advanced += len(keys)
            yield RowBatch(
                documents=[documents[key] for key in keys],
                metadata=[self._metadata(stage, ranks, key, scores[key]) for key in keys],
            )
        self.stats.eof = True

    def _ranked(self, stage: RankFusion, pipeline: list[Document], run: Run) -> Iterator[tuple[int, Document] | None]:
        """The documents of one ranking; those that its order holds for equal share a rank."""
        inner = stage.context.inside(stage.name)
        order = None
        for one in parsed([spec for spec in pipeline if "$geoNear" not in spec], inner).stages:
            if isinstance(one, Sort):
                order = one
            elif isinstance(one, Sample):
                order = None
        node = sources_of(stage.context).plan(stage.context.namespace, pipeline, inner)
        place = rank = 0
        last: Any = None
        for batch in run_inner(node, run, run.variables):
            if batch is None:
                yield None
                continue
            for number, document in enumerate(batch.documents()):
                place += 1
                beside = None if batch.metadata is None else batch.metadata[number]
                key = place if order is None else order.pattern.key(document, beside, stage.context.collation)
                if key != last:
                    rank, last = place, key
                yield rank, document

    @staticmethod
    def _score(stage: RankFusion, ranks: dict[str, dict[Any, int]], key: Any) -> float:
        shares = (stage.weights[name] * (1 / (_RANK_CONSTANT + own[key])) for name, own in ranks.items() if key in own)
        return sum(shares, 0.0)

    @staticmethod
    def _metadata(stage: RankFusion, ranks: dict[str, dict[Any, int]], key: Any, score: float) -> Metadata:
        if not stage.details:
            return {"score": score}
        details: list[Document] = [
            {"inputPipelineName": name, "rank": own[key], "weight": stage.weights[name], "details": []}
            if key in own
            else {"inputPipelineName": name, "rank": "NA"}
            for name, own in ranks.items()
        ]
        return {"score": score, "scoreDetails": {"value": score, "description": _DESCRIPTION, "details": details}}


STAGES: Final[dict[str, StageParser]] = {"$rankFusion": RankFusion.parse}
