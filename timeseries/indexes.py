"""Indexes of a time-series collection: keys on measurements ↔ keys on the buckets that hold them.

A measurement field becomes the pair of its smallest and its greatest value in a bucket (`control.min`, `control.max`), the
smaller one first where the index ascends; the meta field is `meta`. What cannot be told from the bucket's index alone is
kept with it as `originalSpec`.
"""

from typing import Any, Final

from bson import DatetimeMS

from ..catalog.collections import Collection
from ..catalog.index_options import check_key, is_wildcard_path
from ..catalog.index_specs import IndexSpec
from ..catalog.timeseries_options import TimeseriesOptions
from ..common.display import value_text
from ..common.errors import BadValue, CannotCreateIndex, IndexOptionsConflict, InvalidOptions
from ..common.numbers import is_number
from ..common.values import Document, type_name

_MIN: Final = "control.min."
_MAX: Final = "control.max."
_COLUMN: Final = "data."
_LOOSE: Final = {
    "$gt": (_MAX, _MIN, "$_internalExprGt", -1),
    "$gte": (_MAX, _MIN, "$_internalExprGte", -1),
    "$lt": (_MIN, _MAX, "$_internalExprLt", 1),
    "$lte": (_MIN, _MAX, "$_internalExprLte", 1),
}
"""The side of a bucket that an operator on measurements tells of; of times the other side too, a bucket's span away."""


def to_bucket_index(collection: Collection, spec: IndexSpec) -> IndexSpec:
    """The index on the buckets that stands for one on measurements.

    Args:
        collection: the time-series collection (its view).
        spec: as the client asked for it, checked as an ordinary index.

    Raises:
        CannotCreateIndex, InvalidOptions, IndexOptionsConflict, Location: not on a time-series collection.
    """
    options = _options(collection)
    asked = spec.document
    _check_options(options, asked)
    ttl = "expireAfterSeconds" in asked
    key: Document = {}
    measures = False
    for path, value in asked["key"].items():
        mapped = _mapped_field(options, path, value, ttl=ttl)
        measures = measures or not _is_about_series(options, path)
        key.update(mapped)
    check_key(key)
    document: Document = {**asked, "key": key}
    partial = asked.get("partialFilterExpression")
    if partial is not None:
        document["partialFilterExpression"] = _bucket_filter(options, partial)
    if partial is not None or measures:
        document["originalSpec"] = dict(asked)
    return spec.with_changes(document=document)


def to_view_index(collection: Collection, index: IndexSpec) -> Document | None:
    """The row of `listIndexes` for an index on buckets; None where it stands for none on measurements."""
    original = index.document.get("originalSpec")
    if original is not None:
        row = dict(original)
        if index.hidden:
            row["hidden"] = True
        else:
            row.pop("hidden", None)
        return row
    key = to_view_key(_options(collection), index.key)
    if key is None:
        return None
    return {name: key if name == "key" else value for name, value in index.to_document().items()}


def to_view_key(options: TimeseriesOptions, key: Document) -> Document | None:
    """The key on measurements that a key on buckets stands for; None where there is none."""
    view: Document = {}
    fields = list(key.items())
    position = 0
    while position < len(fields):
        path, value = fields[position]
        position += 1
        if options.meta_field is not None and (path == "meta" or path.startswith("meta.")):
            view[options.meta_field + path[len("meta") :]] = value
            continue
        if path.startswith(_COLUMN) and value == "2dsphere_bucket":
            view[path[len(_COLUMN) :]] = "2dsphere"
            continue
        first, second = (_MIN, _MAX) if is_number(value) and float(str(value)) >= 0 else (_MAX, _MIN)
        if not path.startswith(first) or position >= len(fields):
            return None
        field = path[len(first) :]
        if fields[position] != (second + field, value):
            return None
        position += 1
        view[field] = value
    return view


def to_bucket_key(collection: Collection, key: Document) -> Document | None:
    """The key on buckets of a key on measurements, as `hint` and `dropIndexes` give it; None where it cannot be one."""
    options = _options(collection)
    try:
        mapped: Document = {}
        for path, value in key.items():
            mapped.update(_mapped_field(options, path, value, ttl=False))
    except CannotCreateIndex:
        return None
    return mapped


def _options(collection: Collection) -> TimeseriesOptions:
    options = collection.timeseries
    assert options is not None, collection.namespace
    return options


def _is_meta(options: TimeseriesOptions, path: str) -> bool:
    meta = options.meta_field
    return meta is not None and (path == meta or path.startswith(meta + "."))


def _is_about_series(options: TimeseriesOptions, path: str) -> bool:
    """Whether the path is the time field, or the meta field or below it."""
    return path == options.time_field or _is_meta(options, path)


def _mapped_field(options: TimeseriesOptions, path: str, value: Any, *, ttl: bool) -> Document:
    """One field of a key on measurements as fields of a key on buckets."""
    if _is_meta(options, path):
        assert options.meta_field is not None
        return {"meta" + path[len(options.meta_field) :]: value}
    if path == options.time_field and not is_number(value):
        raise CannotCreateIndex(
            "Invalid index spec for time-series collection. Indexes on the time field must be ascending or descending "
            f"(numbers only): {value_text({path: value})}"
        )
    if value == "2dsphere":
        return {_COLUMN + path: "2dsphere_bucket"}
    if not is_number(value):
        raise CannotCreateIndex(
            "Invalid index spec for time-series collection. Indexes on measurement fields must be ascending or descending "
            f"(numbers only), or '2dsphere': {value_text({path: value})}"
        )
    if ttl:
        return {_MIN + path: value}
    ascending = float(str(value)) >= 0
    first, second = (_MIN, _MAX) if ascending else (_MAX, _MIN)
    return {first + path: value, second + path: value}


def _check_options(options: TimeseriesOptions, asked: Document) -> None:
    """Refuse what the indexes of a time-series collection cannot have."""
    key = asked["key"]
    if "text" in key.values():
        raise InvalidOptions("Text indexes are not supported on time-series collections")
    if asked.get("unique"):
        raise InvalidOptions("Unique indexes are not supported on time-series collections")
    about_series = all(
        _is_about_series(options, path.removesuffix("$**").removesuffix(".") if is_wildcard_path(path) else path)
        for path in key
    )
    if asked.get("sparse") and not about_series:
        raise InvalidOptions("Sparse indexes are not supported on time-series measurements")
    partial = asked.get("partialFilterExpression")
    if partial is not None and "collation" in asked:
        raise IndexOptionsConflict(
            "On a time-series collection, partialFilterExpression and collation arguments are incompatible"
        )
    if "expireAfterSeconds" in asked:
        if partial is None or not all(_is_meta(options, path) for path in _paths(partial)):
            raise InvalidOptions(
                "TTL indexes on time-series collections require a partialFilterExpression on the metaField"
            )
        if list(key) != [options.time_field]:
            raise InvalidOptions("TTL indexes on non-time fields are not supported on time-series collections")


def _paths(filter: Document) -> list[str]:
    """The paths that a filter looks at."""
    paths: list[str] = []
    for name, value in filter.items():
        if name in ("$and", "$or"):
            for branch in value:
                paths += _paths(branch)
        elif not name.startswith("$"):
            paths.append(name)
    return paths


def _bucket_filter(options: TimeseriesOptions, filter: Document) -> Document:
    """A filter that every bucket passes that holds a measurement which passes `filter`.

    Raises:
        CannotCreateIndex: a predicate on measurements that says nothing about a bucket.
    """
    translated: Document = {}
    loose: list[Document] = []
    for name, value in filter.items():
        if name in ("$and", "$or"):
            if not isinstance(value, list) or not value:
                raise BadValue(f"{name} must be a nonempty array")
            branches = [_bucket_filter(options, branch) for branch in value]
            if name == "$and":
                for branch in branches:
                    for told, condition in branch.items():
                        if told == "$and":
                            loose += condition
                        elif told in translated:
                            loose.append({told: condition})
                        else:
                            translated[told] = condition
            else:
                loose.append({"$or": branches})
        elif _is_meta(options, name):
            assert options.meta_field is not None
            translated["meta" + name[len(options.meta_field) :]] = value
        else:
            loose += _loose_predicates(options, name, value)
    if loose:
        translated["$and"] = loose
    return translated


def _loose_predicates(options: TimeseriesOptions, path: str, value: Any) -> list[Document]:
    operators = value if isinstance(value, dict) and next(iter(value), "").startswith("$") else {"$eq": value}
    found: list[Document] = []
    for operator, operand in operators.items():
        if operator == "$eq":
            names: tuple[str, ...] = ("$gte", "$lte")
        elif operator in _LOOSE:
            names = (operator,)
        else:
            raise CannotCreateIndex(
                f"Partial indexes on a time-series collection cannot have {operator} on '{path}', which is not the meta field"
            )
        for name in names:
            side, other, internal, away = _LOOSE[name]
            told = {side + path: {internal: operand}}
            if path == options.time_field and type_name(operand) == "date":
                reach = DatetimeMS(int(operand) + away * options.span_ms)
                found.append({"$and": [told, {other + path: {internal: reach}}]})
            else:
                found.append(told)
    return found
