"""What a pipeline needs: the actions on the collection it starts from, and on all that its stages read and write.

A source that is not known here needs what only `__system` has: nobody is let in by an omission.
"""

from collections.abc import Iterator
from typing import Any, Final

Need = tuple[str, str, str]
"""Action, database, collection: no database means the cluster, `ANY_DATABASE` any database, no collection the database."""

_OF_COLLECTION: Final = {
    "$collStats": "collStats",
    "$indexStats": "indexStats",
    "$planCacheStats": "planCacheRead",
}
_OF_CLUSTER: Final = {"$querySettings": "querySettings", "$queryStats": "queryStatsRead"}
_OF_NOBODY: Final = frozenset({"$documents", "$listClusterCatalog", "$listSearchIndexes"})
"""Sources that read no collection, or show no more than the user may see."""

_BY_USER: Final = {"$currentOp": "inprog", "$listSessions": "listSessions", "$listLocalSessions": "listSessions"}
"""Sources that show what is the user's own; who wants to see what is others' needs an action on the cluster."""

_UNPACKING: Final = frozenset({"$_internalUnpackBucket", "$_unpackBucket"})

SOURCES: Final = frozenset({*_OF_COLLECTION, *_OF_CLUSTER, *_OF_NOBODY, *_BY_USER})
"""First stages that do not read the documents of the collection."""


def pipeline_needs(database: str, collection: str, pipeline: Any) -> Iterator[Need]:
    """What a pipeline needs that starts from a collection, or, with an empty one, from none."""
    stages = [stage for stage in pipeline if isinstance(stage, dict)] if isinstance(pipeline, list) else []
    first = next(iter(stages[0]), "") if stages else ""
    if collection and first not in SOURCES:
        yield "find", database, collection
    for stage in stages:
        for name, spec in stage.items():
            yield from _stage_needs(database, collection, name, spec)


def _stage_needs(database: str, collection: str, name: str, spec: Any) -> Iterator[Need]:
    if name in _OF_COLLECTION:
        yield _OF_COLLECTION[name], database, collection
        return
    if name in _OF_CLUSTER:
        yield _OF_CLUSTER[name], "", ""
        return
    if name in _BY_USER:
        if isinstance(spec, dict) and (spec.get("allUsers") or spec.get("users")):
            yield _BY_USER[name], "", ""
        return
    match name, spec:
        case "$lookup" | "$graphLookup", {**fields}:
            where = _named(database, fields.get("from"))
            if fields.get("from") is None:
                where = database, ""
            yield from pipeline_needs(*where, fields.get("pipeline"))
        case "$unionWith", {**fields}:
            where = (database, "") if fields.get("coll") is None else _named(database, fields)
            yield from pipeline_needs(*where, fields.get("pipeline"))
        case "$unionWith", _:
            yield "find", *_named(database, spec)
        case "$facet", {**branches}:
            for branch in branches.values():
                for stage in branch if isinstance(branch, list) else ():
                    for inner, inner_spec in stage.items() if isinstance(stage, dict) else ():
                        yield from _stage_needs(database, collection, inner, inner_spec)
        case "$rankFusion" | "$scoreFusion", {"input": {"pipelines": {**branches}}}:
            for branch in branches.values():
                yield from pipeline_needs(database, collection, branch)
        case "$out", _:
            for action in ("insert", "remove"):
                yield action, *_named(database, spec)
        case "$merge", _:
            where = _named(database, spec.get("into") if isinstance(spec, dict) else spec)
            for action in ("insert", "update"):
                yield action, *where
        case name, _ if name in _UNPACKING:
            return


def _named(database: str, target: Any) -> tuple[str, str]:
    """A collection as stages name it: a name, or `{db, coll}`."""
    if isinstance(target, dict):
        other = target.get("db")
        return other if isinstance(other, str) else database, str(target.get("coll", ""))
    return database, str(target)


def writes_elsewhere(pipeline: Any) -> bool:
    """Whether the last stage writes."""
    last = pipeline[-1] if isinstance(pipeline, list) and pipeline else None
    return isinstance(last, dict) and not {"$out", "$merge"}.isdisjoint(last)
