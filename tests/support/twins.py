"""Kernels in plain Python: what they mean, said once more and slowly."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from bson import DatetimeMS

from bucketd.common.ordering import canonical_class, compare


def normalised(value: Any) -> Any:
    """A meta value as it is stored: the fields of every object sorted by the bytes of their names."""
    if isinstance(value, dict):
        return {name: normalised(value[name]) for name in sorted(value, key=str.encode)}
    if isinstance(value, list):
        return [normalised(item) for item in value]
    return value


def control_bound(
    measurements: Sequence[dict[str, Any]], time_field: str, meta_field: str | None, rounded_ms: int, sign: int
) -> dict[str, Any]:
    """control.min (sign -1) or control.max (sign 1) of a bucket that got these measurements in this order."""
    bound: dict[str, Any] = {time_field: DatetimeMS(rounded_ms)}
    for measurement in measurements:
        bound = _merged_object(bound, {name: v for name, v in measurement.items() if name != meta_field}, sign)
    return bound


def _merged(known: Any, value: Any, sign: int) -> Any:
    if isinstance(known, dict) and isinstance(value, dict):
        return _merged_object(known, value, sign)
    if isinstance(known, list) and isinstance(value, list):
        both = [_merged(old, new, sign) for old, new in zip(known, value, strict=False)]
        return both + known[len(both) :] + deepcopy(value[len(both) :])
    classes = canonical_class(value) - canonical_class(known)
    order = classes if classes else compare(value, known)
    return deepcopy(value) if order * sign > 0 else known


def _merged_object(known: dict[str, Any], value: dict[str, Any], sign: int) -> dict[str, Any]:
    names = list(known)
    fields = dict(known)
    cursor = 0
    for name, new in value.items():
        if name in fields:
            cursor = names.index(name) + 1
            fields[name] = _merged(fields[name], new, sign)
        else:
            names.insert(cursor, name)
            fields[name] = deepcopy(new)
            cursor += 1
    return {name: fields[name] for name in names}


def same_schema(known: Any, value: Any) -> bool:
    """Whether a value has, at every path that is known, the class of type that is known there."""
    if isinstance(known, dict) and isinstance(value, dict):
        return all(same_schema(known[name], new) for name, new in value.items() if name in known)
    if isinstance(known, list) and isinstance(value, list):
        return all(same_schema(old, new) for old, new in zip(known, value, strict=False))
    return canonical_class(known) == canonical_class(value)
