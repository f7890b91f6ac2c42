"""How a `$lookup` runs: one reading of the other collection for many documents where only fields are compared.

Where a pipeline does nothing but choose and reshape rows one by one, they are chosen in the same way and go through it in
memory.
Where the other collection has too much for that many documents at once, it is read for each of them.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from bson import Int64

from ...common.errors import Location
from ...common.ordering import OrderKey, order_key
from ...common.paths import path_values
from ...common.values import MISSING, Document, encode
from ..plan.batches import Batch, Metadata, RowBatch
from ..plan.nodes import PlanNode, Run
from .base import StageNode
from .correlated import mentions, with_known_operands
from .inner import equal_to_any, inner_batches, parsed, run_inner

if TYPE_CHECKING:
    from .lookup import Lookup
    from .parse import Pipeline

_TOGETHER_BYTES_MAX: Final = 32 * 1024 * 1024
"""How much may be found for several documents at once."""
_FOUND_BYTES_MAX: Final = 100 * 1024 * 1024
_ROW_BY_ROW: Final = ("$addFields", "$project", "$replaceRoot", "$replaceWith", "$set", "$unset")
_NEVER_THE_SAME: Final = ("$rand", "$sample", "$sampleRate")


def local_values(document: Document, path: tuple[str, ...]) -> list[Any]:
    """What a document joins by: the elements of an array, each value on the way through arrays, null where there is none."""
    if len(path) == 1:
        value = document.get(path[0])
        if type(value) is not list:
            return [value]
    found: list[Any] = []
    for value in path_values(document, path, expand=False):
        if isinstance(value, list):
            found += value
        else:
            found.append(None if value is MISSING else value)
    return found or [None]


def _foreign_keys(row: Document, path: tuple[str, ...], collation: Any) -> Sequence[OrderKey]:
    """The keys of the values by which a row of the other collection is found."""
    if len(path) == 1:
        value = row.get(path[0])
        if type(value) is not list:
            return (order_key(value, collation),)
    return [order_key(None if value is MISSING else value, collation) for value in path_values(row, path)]


class _Rows(PlanNode):
    """Rows that are there already."""

    stage = "QUEUED_DATA"

    def __init__(self, rows: list[Document]) -> None:
        super().__init__()
        self._rows = rows

    def batches(self, run: Run) -> Iterator[Batch | None]:
        """See `PlanNode.batches`."""
        for start in range(0, len(self._rows), run.batch_rows):
            yield RowBatch(documents=self._rows[start : start + run.batch_rows])


class _Too(Exception):
    """More was found than may be held."""


class LookupNode(StageNode):
    """Runs a `$lookup` over its source."""

    def __init__(self, stage: "Lookup", source: PlanNode) -> None:
        super().__init__(stage, source)
        self._lookup = stage
        self._filter = None if stage.filter is None else stage.filter.serialize()
        self._kept: list[Document] | None = None
        together = self._on_chosen_rows()
        self._chosen: list[Document] = [] if together is None else together[0]
        self._on_rows: Pipeline | None = None if together is None else together[1]
        self._totals = {"totalDocsExamined": 0, "totalKeysExamined": 0, "collectionScans": 0}
        self._indexes: dict[str, None] = {}

    def batches(self, run: Run) -> Iterator[Batch | None]:
        """See `PlanNode.batches`."""
        for batch in self.inputs[0].batches(run):
            if batch is None:
                yield None
                continue
            for made in self._of_batch(batch, run):
                self.stats.advanced += 0 if made is None else len(made)
                yield made
        self.stats.eof = True
        self.stats.extra = {
            **{name: Int64(total) for name, total in self._totals.items()},
            "indexesUsed": list(self._indexes),
        }

    def _of_batch(self, batch: Batch, run: Run) -> Iterator[Batch | None]:
        documents = batch.documents()
        found: list[list[Document]] | None = None
        if self._on_rows is not None:
            try:
                for joined in self._joined(documents, run, _TOGETHER_BYTES_MAX if len(documents) > 1 else None):
                    if joined is None:
                        yield None
                    else:
                        found = joined
            except _Too:
                found = None
        yield from self._rows_of(batch, documents, found, run)

    def _rows_of(
        self, batch: Batch, documents: list[Document], found: list[list[Document]] | None, run: Run
    ) -> Iterator[Batch | None]:
        """The rows of a batch, with what was found for each where that is known already."""
        unwinding = self._lookup.unwinding
        made: list[Document] = []
        beside: list[Metadata] | None = None if batch.metadata is None else []
        for position, document in enumerate(documents):
            given = None if found is None else found[position]
            rows: Iterator[Document | None]
            if given is not None and self._lookup.let and self._on_rows is not None and not self._on_rows.stages:
                # Nobody reads the variables; what is wrong with them is told all the same.
                self._values(document, run)
            if given is None:
                rows = self._found_alone(document, run)
            elif self._on_rows is None or not self._on_rows.stages:
                rows = iter(given)
            else:
                rows = self._through_pipeline(document, given, run)
            if unwinding is None:
                gathered: list[Document] = []
                if given is not None and self._on_rows is not None and not self._on_rows.stages:
                    gathered = given
                else:
                    for row in self._within_bound(rows):
                        if row is None:
                            yield None
                        else:
                            gathered.append(row)
                made.append(self._lookup.with_rows(document, gathered))
                if beside is not None and batch.metadata is not None:
                    beside.append(batch.metadata[position])
                continue
            at = 0
            for row in rows:
                if row is None:
                    yield None
                    continue
                made.append(unwinding.with_item(document, row, Int64(at) if unwinding.index is not None else None))
                at += 1
                if beside is not None and batch.metadata is not None:
                    beside.append(batch.metadata[position])
                if len(made) >= run.batch_rows:
                    yield RowBatch(documents=made, metadata=beside)
                    made, beside = [], None if beside is None else []
            if not at and unwinding.keep_empty:
                made.append(unwinding.with_item(document, MISSING, None))
                if beside is not None and batch.metadata is not None:
                    beside.append(batch.metadata[position])
        yield RowBatch(documents=made, metadata=beside) if made else None

    def _within_bound(self, rows: Iterator[Document | None]) -> Iterator[Document | None]:
        """The rows of one document.

        Raises:
            Location: 4568, more than an array of them may hold on the way.
        """
        size = 0
        for row in rows:
            if row is not None:
                size += len(encode(row))
                if size > _FOUND_BYTES_MAX:
                    raise Location(
                        4568,
                        f"Total size of documents in {self._lookup.source.collection} matching pipeline's $lookup stage "
                        f"exceeds {_FOUND_BYTES_MAX} bytes",
                    )
            yield row

    def _joined(
        self, documents: list[Document], run: Run, bytes_max: int | None
    ) -> Iterator[list[list[Document]] | None]:
        """What belongs to each of the documents, by one reading of the other collection for all of them.

        Raises:
            _Too: it is too much to be held.
            Location: 4568, it is too much for one document.
        """
        lookup = self._lookup
        assert lookup.local is not None
        assert lookup.foreign is not None
        collation, local, foreign = lookup.context.collation, lookup.local, lookup.foreign
        wanted: dict[OrderKey, list[int]] = {}
        values: list[Any] = []
        for position, document in enumerate(documents):
            for value in local_values(document, local):
                key = order_key(value, collation)
                places = wanted.get(key)
                if places is None:
                    wanted[key] = [position]
                    values.append(value)
                elif places[-1] != position:
                    places.append(position)
        found: list[list[Document]] = [[] for _ in documents]
        condition = self._condition(values)
        size = 0
        for batch in self._read([{"$match": condition}], run, {}):
            if batch is None:
                yield None
                continue
            rows = batch.documents()
            size += _about_bytes(batch)
            if bytes_max is not None and size > bytes_max:
                raise _Too
            for row in rows:
                keys = _foreign_keys(row, foreign, collation)
                if len(keys) == 1:
                    for place in wanted.get(keys[0], ()):
                        found[place].append(row)
                    continue
                for place in sorted({place for key in keys for place in wanted.get(key, ())}):
                    found[place].append(row)
            if bytes_max is None and size > _FOUND_BYTES_MAX:
                # One document has it all; what is left is streamed, or refused.
                raise _Too
        yield found

    def _condition(self, values: list[Any]) -> Document:
        assert self._lookup.foreign is not None
        condition = equal_to_any(".".join(self._lookup.foreign), values)
        return {"$and": [condition, *self._chosen]} if self._chosen else condition

    def _read(self, pipeline: list[Document], run: Run, variables: dict[str, Any]) -> Iterator[Batch | None]:
        """The batches of a pipeline on the other collection."""
        lookup = self._lookup
        return inner_batches(lookup.context, lookup.source, pipeline, run, variables, self._note)

    def _note(self, node: PlanNode) -> None:
        """Count what a plan on the other collection read."""
        self._totals["totalDocsExamined"] += node.stats.docs_examined
        self._totals["totalKeysExamined"] += node.stats.keys_examined
        self._totals["collectionScans"] += node.stage == "COLLSCAN"
        index = getattr(node, "index", None)
        if index is not None:
            self._indexes[index.name] = None
        for below in node.inputs:
            self._note(below)

    def _on_chosen_rows(self) -> tuple[list[Document], "Pipeline"] | None:
        """Filters that choose rows, and the pipeline for those rows; None where it has to be planned for each document."""
        lookup = self._lookup
        if lookup.local is None:
            return None
        stages = list(lookup.pipeline or ())
        chosen: list[Document] = []
        while stages and "$match" in stages[0] and not mentions(stages[0], ("$$",)):
            chosen.append(stages.pop(0)["$match"])
        if not all(next(iter(stage)) in _ROW_BY_ROW for stage in stages):
            return None
        if self._filter is not None and stages:
            stages.append({"$match": self._filter})
        elif self._filter is not None:
            chosen.append(self._filter)
        context = lookup.context.inside(lookup.name, lookup.source, dict.fromkeys(lookup.let))
        return chosen, parsed(stages, context).optimized()

    def _through_pipeline(self, document: Document, rows: list[Document], run: Run) -> Iterator[Document | None]:
        """What the pipeline makes of the rows that were chosen for a document."""
        assert self._on_rows is not None
        variables = {**run.variables, **self._values(document, run)}
        for batch in run_inner(self._on_rows.node(_Rows(rows)), run, variables):
            if batch is None:
                yield None
            else:
                yield from batch.documents()

    def _values(self, document: Document, run: Run) -> dict[str, Any]:
        return {name: one.evaluate(document, run.variables) for name, one in self._lookup.let.items()}

    def _found_alone(self, document: Document, run: Run) -> Iterator[Document | None]:
        """What belongs to one document, as it is read."""
        lookup = self._lookup
        if self._kept is not None:
            yield from self._kept
            return
        variables = self._values(document, run)
        pipeline: list[Document] = list(lookup.pipeline or ())
        if lookup.local is not None and lookup.foreign is not None:
            condition = equal_to_any(".".join(lookup.foreign), local_values(document, lookup.local))
            # Rows that the pipeline gives itself come before they are chosen from.
            begun = 1 if lookup.begins_with_documents else 0
            pipeline = [*pipeline[:begun], {"$match": condition}, *pipeline[begun:]]
        if self._filter is not None:
            pipeline.append({"$match": self._filter})
        pipeline = with_known_operands(pipeline, variables)
        # Where nothing of the outer document goes in, every one of them gets the same.
        alike = not lookup.let and lookup.local is None and not mentions(pipeline, _NEVER_THE_SAME)
        kept: list[Document] | None = [] if alike else None
        size = 0
        for batch in self._read(pipeline, run, variables):
            if batch is None:
                yield None
                continue
            size += _about_bytes(batch)
            if kept is not None and size <= _TOGETHER_BYTES_MAX:
                kept += batch.documents()
            else:
                kept = None
            yield from batch.documents()
        self._kept = kept


def _about_bytes(batch: Batch) -> int:
    """About how much the rows of a batch take."""
    return len(encode(batch.documents()[0])) * len(batch) if len(batch) else 0
