"""Options of a time-series collection: checked, completed with their defaults, and what follows from them.

Rules, texts and codes are those of `create` and `collMod` in MongoDB 8.2 (manual: "Create a Time Series Collection").
"""

from dataclasses import dataclass, replace
from typing import Any, Final, Self

from bson import Decimal128, Int64

from ..common.errors import (
    BadValue,
    IDLFailedToParse,
    IDLUnknownField,
    InvalidOptions,
    TypeMismatch,
)
from ..common.values import Document, type_name

SPAN_SECONDS: Final = {"seconds": 3600, "minutes": 86400, "hours": 2_592_000}
"""The longest time that a bucket of each granularity covers."""
ROUNDING_SECONDS: Final = {"seconds": 60, "minutes": 3600, "hours": 86400}
"""To what the start of a bucket of each granularity is rounded down."""
_ORDER: Final = tuple(SPAN_SECONDS)
SECONDS_MAX: Final = 31_536_000
_FIELDS: Final = ("timeField", "metaField", "granularity", "bucketMaxSpanSeconds", "bucketRoundingSeconds")
DATE_MS_MIN: Final = -(2**63)
STANDARD_MS_MAX: Final = (2**31 - 1) * 1000
"""Dates from 1970 up to here keep the order of time in the `_id` of their bucket."""

EXTENDED_RANGE: Final = "extendedRange"
"""Flag of a buckets collection: some dates do not keep the order of time in the `_id` of their bucket."""


@dataclass(frozen=True, slots=True)
class TimeseriesOptions:
    """Checked options with their defaults filled in. Exactly one of `granularity` and `rounding` is set."""

    time_field: str
    meta_field: str | None = None
    granularity: str | None = "seconds"
    span: int = 3600
    """bucketMaxSpanSeconds."""
    rounding: int | None = None
    """bucketRoundingSeconds, where it was given."""

    @property
    def rounding_seconds(self) -> int:
        """To how many seconds the start of a bucket is rounded down."""
        if self.granularity is not None:
            return ROUNDING_SECONDS[self.granularity]
        return 60 if self.rounding is None else self.rounding

    @property
    def span_ms(self) -> int:
        """The longest time that a bucket covers, in milliseconds."""
        return self.span * 1000

    def round_down(self, time_ms: int) -> int:
        """The start of a new bucket for a measurement of this time; both in milliseconds."""
        step = self.rounding_seconds * 1000
        return max(time_ms // step * step, DATE_MS_MIN)

    def to_document(self) -> Document:
        """As the catalog stores and `listCollections` shows them."""
        document: Document = {"timeField": self.time_field}
        if self.meta_field is not None:
            document["metaField"] = self.meta_field
        if self.granularity is not None:
            document["granularity"] = self.granularity
        if self.rounding is not None:
            document["bucketRoundingSeconds"] = self.rounding
        document["bucketMaxSpanSeconds"] = self.span
        return document

    def unpack_spec(self) -> Document:
        """The `$_internalUnpackBucket` stage of the view's pipeline."""
        spec: Document = {"timeField": self.time_field}
        if self.meta_field is not None:
            spec["metaField"] = self.meta_field
        spec["bucketMaxSpanSeconds"] = self.span
        return spec

    @classmethod
    def from_document(cls, stored: Document) -> Self:
        """From the stored form."""
        return cls(
            time_field=stored["timeField"],
            meta_field=stored.get("metaField"),
            granularity=stored.get("granularity"),
            span=int(stored["bucketMaxSpanSeconds"]),
            rounding=None if "bucketRoundingSeconds" not in stored else int(stored["bucketRoundingSeconds"]),
        )

    @classmethod
    def parse(cls, spec: Any, namespace: str, *, any_meta: bool = False) -> Self:
        """Check the `timeseries` option of `create`; with `any_meta` that of `$out`, where the meta field may be any.

        Raises:
            TypeMismatch, IDLFailedToParse, IDLUnknownField, BadValue, InvalidOptions
        """
        if not isinstance(spec, dict):
            raise TypeMismatch(
                f"BSON field 'create.timeseries' is the wrong type '{type_name(spec)}', expected type 'object'"
            )
        refuse_unknown(spec, _FIELDS, "create.timeseries")
        time_field = _string(spec, "timeField")
        meta_field = _string(spec, "metaField")
        if time_field is None:
            raise IDLFailedToParse("BSON field 'create.timeseries.timeField' is missing but a required field")
        granularity = _granularity(spec, "create.timeseries")
        span = bucket_seconds(spec, "bucketMaxSpanSeconds", "create.timeseries")
        rounding = bucket_seconds(spec, "bucketRoundingSeconds", "create.timeseries")
        if "." in time_field:
            raise InvalidOptions(f"{namespace}: 'timeField' must be a top-level field and not contain a '.'")
        if meta_field is not None and not any_meta:
            if meta_field == "_id":
                raise InvalidOptions("'metaField' cannot be \"_id\"")
            if meta_field == time_field:
                raise InvalidOptions("'metaField' cannot be the same as 'timeField'")
            if "." in meta_field:
                raise InvalidOptions(f"{namespace}: 'metaField' must be a top-level field and not contain a '.'")
        if granularity is not None:
            if span is not None and span != SPAN_SECONDS[granularity]:
                raise InvalidOptions(
                    "Time-series 'bucketMaxSpanSeconds' cannot be set to a value other than the default of "
                    f"{SPAN_SECONDS[granularity]} for the provided granularity"
                )
            if rounding is not None:
                raise InvalidOptions(
                    "Time-series 'bucketRoundingSeconds' cannot be set alongside the granularity parameter"
                )
        elif span is not None or rounding is not None:
            if span is None or rounding is None or span != rounding:
                raise InvalidOptions("Time-series 'bucketRoundingSeconds' must be equal to 'bucketMaxSpanSeconds'")
            return cls(time_field, meta_field, None, span, rounding)
        granularity = granularity or "seconds"
        return cls(time_field, meta_field, granularity, SPAN_SECONDS[granularity])

    def changed(self, spec: Any) -> "TimeseriesOptions":
        """The options after a collMod with this `timeseries` option; equal ones where nothing changes.

        Raises:
            TypeMismatch, IDLUnknownField, BadValue, InvalidOptions
        """
        if not isinstance(spec, dict):
            raise TypeMismatch(
                f"BSON field 'collMod.timeseries' is the wrong type '{type_name(spec)}', expected type 'object'"
            )
        refuse_unknown(spec, _FIELDS[2:], "collMod.timeseries")
        granularity = _granularity(spec, "collMod.timeseries")
        span = bucket_seconds(spec, "bucketMaxSpanSeconds", "collMod.timeseries")
        rounding = bucket_seconds(spec, "bucketRoundingSeconds", "collMod.timeseries")
        if granularity is not None:
            return self._with_granularity(granularity, span, rounding)
        if span is None and rounding is None:
            return self
        if span is None or rounding is None:
            raise InvalidOptions(
                "Timeseries 'bucketMaxSpanSeconds' and 'bucketRoundingSeconds' need to be set alongside each other"
            )
        if span == self.span and rounding == self.rounding_seconds:
            return self
        if span != rounding:
            raise InvalidOptions("Timeseries 'bucketRoundingSeconds' needs to be equal to 'bucketMaxSpanSeconds'")
        if span < self.span:
            raise InvalidOptions("Timeseries 'bucketMaxSpanSeconds' needs to be equal or greater to transition")
        if rounding < self.rounding_seconds:
            raise InvalidOptions("Timeseries 'bucketRoundingSeconds' needs to be equal or greater to transition")
        return replace(self, granularity=None, span=span, rounding=rounding)

    def _with_granularity(self, granularity: str, span: int | None, rounding: int | None) -> "TimeseriesOptions":
        if span is not None and span != SPAN_SECONDS[granularity]:
            raise InvalidOptions(
                "Timeseries 'bucketMaxSpanSeconds' is not configurable to a value other than the default for the "
                "provided granularity"
            )
        if rounding is not None:
            raise InvalidOptions(
                "Timeseries 'bucketRoundingSeconds' is not configurable alongside the granularity parameter"
            )
        if granularity == self.granularity:
            return self
        coarser = (
            _ORDER.index(granularity) > _ORDER.index(self.granularity)
            if self.granularity is not None
            else SPAN_SECONDS[granularity] >= self.span and ROUNDING_SECONDS[granularity] >= self.rounding_seconds
        )
        if not coarser:
            raise InvalidOptions(
                "Invalid transition for timeseries.granularity. Can only transition from 'seconds' to 'minutes' or "
                "'minutes' to 'hours'."
            )
        return replace(self, granularity=granularity, span=SPAN_SECONDS[granularity], rounding=None)


def is_extended(time_ms: int) -> bool:
    """Whether the `_id` of a bucket cannot tell the date."""
    return not 0 <= time_ms <= STANDARD_MS_MAX


def refuse_unknown(spec: Document, known: tuple[str, ...], where: str) -> None:
    """Raise IDLUnknownField for the first field that is not known."""
    for name in spec:
        if name not in known:
            raise IDLUnknownField(f"BSON field '{where}.{name}' is an unknown field.")


def _string(spec: Document, name: str) -> str | None:
    value = spec.get(name)
    if value is None:
        return None
    if type_name(value) != "string":
        raise TypeMismatch(
            f"BSON field 'create.timeseries.{name}' is the wrong type '{type_name(value)}', expected type 'string'"
        )
    if "\0" in value:
        raise BadValue(f"BSON field 'create.timeseries.{name}' must not contain a null byte")
    return str(value)


def _granularity(spec: Document, where: str) -> str | None:
    value = spec.get("granularity")
    if value is None:
        return None
    if type_name(value) != "string":
        raise TypeMismatch(
            f"BSON field '{where}.granularity' is the wrong type '{type_name(value)}', expected type 'string'"
        )
    if value not in SPAN_SECONDS:
        raise BadValue(f"Enumeration value '{value}' for field '{where}.granularity' is not a valid value.")
    return str(value)


def bucket_seconds(spec: Document, name: str, where: str) -> int | None:
    """One of the two numbers of seconds, as a whole number from 1 to 31536000."""
    value = spec.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or type_name(value) not in ("int", "long", "double", "decimal"):
        raise TypeMismatch(
            f"BSON field '{where}.{name}' is the wrong type '{type_name(value)}', expected types "
            "'[long, int, decimal, double]'"
        )
    # Decimals are rounded half to even, doubles cut.
    number = float(value.to_decimal().to_integral_value()) if isinstance(value, Decimal128) else float(value)
    seconds = 0 if number != number else int(max(min(number, 2**31 - 1), -(2**31)))
    if seconds < 1:
        raise BadValue(f"BSON field '{name}' value must be >= 1, actual value '{seconds}'")
    if seconds > SECONDS_MAX:
        raise BadValue(f"BSON field '{name}' value must be <= {SECONDS_MAX}, actual value '{seconds}'")
    return seconds


def lifetime_seconds(value: Any, now_ms: int) -> Int64:
    """`expireAfterSeconds` of a collection, checked.

    Raises:
        InvalidOptions: negative, or longer than time has been counted.
    """
    seconds = int(value)
    if seconds < 0:
        raise InvalidOptions("TTL index 'expireAfterSeconds' option cannot be less than 0")
    if seconds > (2**63 - 1) // 1000 or seconds > now_ms // 1000:
        raise InvalidOptions(
            "TTL index 'expireAfterSeconds' option must be within an acceptable range, try a lower number"
        )
    return Int64(seconds)
