"""Requests that nobody would send, made of the words that the server knows: values, filters, updates, expressions, stages."""

# ruff: noqa: E501 - tables of words

import copy
import random
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from bson import Binary, Code, DatetimeMS, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp

from bucketd.query.expression.parse import OPERATORS as EXPRESSIONS
from bucketd.query.match.geo import GEO_OPERATORS
from bucketd.query.match.parse import PATH_OPERATORS, TOP_OPERATORS
from bucketd.query.pipeline.parse import STAGES
from bucketd.query.pipeline.window_functions import FUNCTIONS
from bucketd.query.update.operators import OPERATORS as UPDATES

Document = dict[str, Any]

NAMES = ("a", "b", "_id", "t", "m", "v", "where", "words", "n", "a.b", "a.0", "a.0.b", "m.x", "x.y.z")
STRANGE_NAMES = ("", ".", "a.", ".a", "a..b", "$", "$a", "a.$", "a.$[]", "a.$[x]", "$**", "a.$**", "0", "ü", "a" * 300)
STRINGS = (
    "", "a", "$a", "$a.b", "$$ROOT", "$$NOW", "$$", "$", "$$REMOVE", "$$x", "abc", "\0", "2024-01-01", "12", "1e400", "ß", "İ",
    "\U0001f600", "x" * 70_000, "UTC", "Europe/Oslo", "+05:30", "nowhere", "%Y-%m-%d", "%", "week", "day", "(", "[a-", "(a+)+$",
    "c", "s", "keep", "first", "en", "simple", "true", "all", "Point", "int", "string", "NaN", "1" * 400,
)  # fmt: skip
NUMBERS = (
    0, 1, -1, 2, 3, 7, 10, 100, 1000, 2**31 - 1, -(2**31), 2**31, 0.0, -0.0, 0.5, 1.5, -2.5, 1e10, 1e308, -1e308, 5e-324,
    float("nan"), float("inf"), float("-inf"), Int64(0), Int64(1), Int64(-1), Int64(2**63 - 1), Int64(-(2**63)),
    Int64(2**53 + 1), Decimal128("0"), Decimal128("1"), Decimal128("-1.50"), Decimal128("NaN"), Decimal128("Infinity"),
    Decimal128("-Infinity"), Decimal128("-0"), Decimal128("9.999999999999999999999999999999999E+6144"), Decimal128("1E-6176"),
)  # fmt: skip
OTHERS: tuple[Any, ...] = (
    None, True, False, MinKey(), MaxKey(), ObjectId("0" * 24), ObjectId("f" * 24), Timestamp(0, 0), Timestamp(2**32 - 1, 1),
    DatetimeMS(0), DatetimeMS(2**63 - 1), DatetimeMS(-(2**63)), DatetimeMS(1_700_000_000_000), DatetimeMS(-62_135_596_800_001),
    datetime(2024, 1, 1, tzinfo=UTC), Regex("a", "i"), Regex("(", ""), Regex("(a|b)*c", "msx"), Regex("x" * 1000),
    Code("function() {}"), Code("1", {"a": 1}), DBRef("c", 1), Binary(b""), Binary(b"abc", 0), Binary(b"\0" * 16, 4),
    Binary(b"x", 3), Binary(b"\x07\x00", 7), Binary(b"\x10\x01\x00\x00\x00\x80\xff\xff\xff\xff\xff\xff\xff\x00", 7), Binary(b"x", 9),
    Binary.from_uuid(UUID(int=5)), Binary(b"abc", 6), Binary(b"abc", 128),
)  # fmt: skip
SHAPES: tuple[Document, ...] = (
    {"type": "Point", "coordinates": [1.5, 2.5]},
    {"type": "Polygon", "coordinates": [[[0, 0], [4, 0], [4, 4], [0, 4], [0, 0]]]},
    {"type": "LineString", "coordinates": [[0, 0], [1, 1]]},
    {"type": "Point", "coordinates": [200, 100]},
    {"type": "Polygon", "coordinates": [[[0, 0], [4, 4], [4, 0], [0, 4], [0, 0]]]},
    {"type": "MultiPolygon", "coordinates": []},
    {"type": "GeometryCollection", "geometries": [{"type": "Point", "coordinates": [0, 0]}]},
)
GENERIC: tuple[tuple[str, Any], ...] = (
    ("maxTimeMS", 100), ("comment", {"a": 1}), ("readConcern", {"level": "local"}), ("writeConcern", {"w": 1}),
    ("collation", {"locale": "en", "strength": 2}), ("let", {"x": 1}), ("hint", {"_id": 1}), ("hint", "a_1"), ("limit", 3),
    ("skip", 2), ("sort", {"a": 1}), ("projection", {"a": 1}), ("batchSize", 1), ("allowDiskUse", True), ("explain", True),
    ("lsid", {"id": Binary.from_uuid(UUID(int=1))}), ("txnNumber", Int64(1)), ("apiVersion", "1"), ("ordered", False),
    ("bypassDocumentValidation", True), ("$readPreference", {"mode": "nearest"}), ("upsert", True), ("new", True), ("min", {"a": 1}),
)  # fmt: skip
ACCUMULATORS = (
    "$sum", "$avg", "$min", "$max", "$push", "$addToSet", "$first", "$last", "$count", "$stdDevPop", "$stdDevSamp", "$top", "$topN",
    "$bottom", "$bottomN", "$firstN", "$lastN", "$minN", "$maxN", "$median", "$percentile", "$mergeObjects", "$accumulator",
)  # fmt: skip
OTHER_STAGES = (
    "$collStats", "$indexStats", "$out", "$merge", "$currentOp", "$planCacheStats", "$listSessions", "$_internalUnpackBucket",
    "$changeStream", "$search", "$unknown", "$listLocalSessions", "$_unpackBucket", "$queryStats", "$listClusterCatalog",
)  # fmt: skip


class Maker:
    """Everything is drawn from one generator: the same seed makes the same requests."""

    def __init__(self, moment: random.Random) -> None:
        self.moment = moment

    def chance(self, share: float) -> bool:
        return self.moment.random() < share

    def number(self) -> Any:
        return self.moment.choice(NUMBERS) if self.chance(0.8) else self.moment.randint(-(2**63), 2**63 - 1)

    def name(self) -> str:
        return self.moment.choice(NAMES if self.chance(0.9) else STRANGE_NAMES)

    def value(self, depth: int = 0) -> Any:
        """Any value at all."""
        choice = self.moment.random()
        if choice < 0.3:
            return self.number()
        if choice < 0.5:
            return self.moment.choice(STRINGS)
        if choice < 0.7 or depth > 3:
            return self.moment.choice(OTHERS)
        if choice < 0.74:
            return copy.deepcopy(self.moment.choice(SHAPES))
        if choice < 0.87:
            return [self.value(depth + 1) for _ in range(self.moment.choice([0, 1, 2, 3]))]
        return {self.name(): self.value(depth + 1) for _ in range(self.moment.choice([0, 1, 2, 3]))}

    def operand(self, depth: int) -> Any:
        return self.value(2) if self.chance(0.4) or depth > 3 else self.expression(depth + 1)

    def expression(self, depth: int = 0) -> Any:
        """An expression, near enough to what can be."""
        if depth > 4 or self.chance(0.25):
            return f"${self.name()}" if self.chance(0.6) else self.value(2)
        operator = self.moment.choice(tuple(EXPRESSIONS))
        choice = self.moment.random()
        if choice < 0.25:
            return {operator: self.operand(depth)}
        if choice < 0.65:
            return {operator: [self.operand(depth) for _ in range(self.moment.choice([0, 1, 2, 2, 3, 4]))]}
        fields = self.moment.sample(
            ["input", "as", "in", "cond", "initialValue", "date", "unit", "startDate", "endDate", "amount", "timezone", "format", "dateString",
             "onNull", "onError", "to", "find", "replacement", "regex", "options", "chars", "if", "then", "else", "branches", "default", "vars",
             "field", "value", "inputs", "useLongestLength", "defaults", "n", "sortBy", "output", "p", "method", "binSize", "year", "isoWeek",
             "limit", "arrayIndexAs", "startOfWeek", "byteOrder", "base"],
            self.moment.choice([1, 2, 3, 4]),
        )  # fmt: skip
        return {operator: {field: self.operand(depth) for field in fields}}

    def filter(self, depth: int = 0) -> Any:
        choice = self.moment.random()
        if choice < 0.2 and depth < 3:
            operator = self.moment.choice(["$and", "$or", "$nor"])
            return {operator: [self.filter(depth + 1) for _ in range(self.moment.choice([0, 1, 2]))]}
        if choice < 0.3:
            return {"$expr": self.expression()}
        if choice < 0.36:
            return {self.moment.choice(tuple(TOP_OPERATORS)): self.value()}
        if choice < 0.45:
            inner = {"$geometry": copy.deepcopy(self.moment.choice(SHAPES)), "$maxDistance": self.number()}
            return {"where": {self.moment.choice(tuple(GEO_OPERATORS)): inner if self.chance(0.7) else self.value()}}
        if choice < 0.6:
            return {self.name(): self.value()}
        operator = self.moment.choice(tuple(PATH_OPERATORS))
        operand: Any
        if operator in ("$elemMatch", "$not") and depth < 3:
            operand = self.filter(depth + 1)
        elif operator in ("$in", "$nin", "$all", "$mod"):
            operand = [self.value(2) for _ in range(self.moment.choice([0, 1, 2, 2, 3]))]
        else:
            operand = self.value()
        more = {self.moment.choice(tuple(PATH_OPERATORS)): self.value()} if self.chance(0.2) else {}
        return {self.name(): {operator: operand, **more}}

    def update(self) -> Any:
        if self.chance(0.25):
            return [self.stage(2, self.moment.choice(["$set", "$unset", "$project", "$replaceWith"])) for _ in range(2)]
        if self.chance(0.1):
            return self.value()
        update = {}
        for _ in range(self.moment.choice([1, 1, 2, 3])):
            operator = self.moment.choice(UPDATES)
            operand = self.value(1)
            if operator in ("$push", "$addToSet") and self.chance(0.7):
                parts = ("$each", "$slice", "$sort", "$position")
                operand = {
                    part: [self.value(2)] if part == "$each" else self.value(2) for part in self.moment.sample(parts, 2)
                }
            elif operator == "$bit":
                operand = {self.moment.choice(["and", "or", "xor"]): self.number()}
            update[operator] = {self.name(): operand, **({self.name(): self.value(2)} if self.chance(0.3) else {})}
        return update

    def accumulator(self) -> Any:
        name = self.moment.choice(ACCUMULATORS)
        if self.chance(0.5):
            return {name: self.expression(2)}
        parts = self.moment.sample(["n", "input", "output", "sortBy", "p", "method"], 3)
        return {name: {part: {"a": 1} if part == "sortBy" else self.operand(3) for part in parts}}

    def stage(self, depth: int = 0, name: str | None = None) -> Any:
        name = name or self.moment.choice((*STAGES, *STAGES, *OTHER_STAGES))
        if self.chance(0.12):
            return {name: self.value()}
        inner = [] if depth > 1 else self.pipeline(depth + 1)
        window = {
            self.moment.choice(["documents", "range"]): [self.number(), self.moment.choice(["current", "unbounded", 1])]
        }
        match name:
            case "$match":
                spec = self.filter()
            case "$limit" | "$skip":
                spec = self.number()
            case "$count" | "$unset":
                spec = self.name()
            case "$sample":
                spec = {"size": self.number()}
            case "$sort":
                spec = {self.name(): self.moment.choice([1, -1, {"$meta": "textScore"}, self.value(2)])}
            case "$unwind":
                spec = {"path": f"${self.name()}", "includeArrayIndex": self.name()}
            case "$group":
                spec = {"_id": self.expression(1), "x": self.accumulator(), "y": self.accumulator()}
            case "$bucket" | "$bucketAuto":
                spec = {"groupBy": self.expression(2), "output": {"x": self.accumulator()}}
                spec |= (
                    {"boundaries": [self.value(2) for _ in range(3)]}
                    if name == "$bucket"
                    else {"buckets": self.number()}
                )
            case "$lookup":
                spec = {
                    "from": self.moment.choice("cs"),
                    "as": self.name(),
                    "localField": self.name(),
                    "foreignField": self.name(),
                }
                spec |= {"pipeline": inner} if self.chance(0.5) else {}
            case "$graphLookup":
                spec = {
                    "from": "c",
                    "startWith": self.expression(2),
                    "connectFromField": self.name(),
                    "connectToField": self.name(),
                }
                spec |= {"as": self.name(), "maxDepth": self.number()}
            case "$unionWith":
                spec = {"coll": self.moment.choice("cs"), "pipeline": inner}
            case "$facet":
                spec = {"x": inner, self.name(): inner}
            case "$densify":
                spec = {
                    "field": self.name(),
                    "range": {
                        "step": self.number(),
                        "bounds": self.moment.choice(["full", "partition", [self.value(2)] * 2]),
                    },
                }
                spec["range"] |= {"unit": self.moment.choice(["day", "millisecond"])} if self.chance(0.5) else {}
            case "$fill":
                spec = {
                    "sortBy": {self.name(): 1},
                    "output": {self.name(): {self.moment.choice(["method", "value"]): "linear"}},
                }
            case "$setWindowFields":
                function = self.moment.choice((*FUNCTIONS, *ACCUMULATORS))
                spec = {
                    "partitionBy": self.expression(3),
                    "sortBy": {self.name(): 1},
                    "output": {self.name(): {function: self.operand(3), "window": window}},
                }
            case "$geoNear":
                spec = {"near": copy.deepcopy(self.moment.choice(SHAPES)), "distanceField": self.name(), "key": "where"}
            case "$out":
                spec = self.moment.choice(["o", {"db": "fuzz", "coll": "o"}, self.value()])
            case "$merge":
                spec = {
                    "into": "o",
                    "on": self.name(),
                    "whenMatched": self.moment.choice(["merge", "replace", "fail", inner]),
                }
            case "$redact" | "$sortByCount" | "$replaceWith":
                spec = self.expression()
            case "$replaceRoot":
                spec = {"newRoot": self.expression()}
            case "$_internalUnpackBucket" | "$_unpackBucket":
                spec = {"timeField": "t", "metaField": "m", "bucketMaxSpanSeconds": 3600, "exclude": []}
            case _:
                spec = {self.name(): self.moment.choice([1, 0, self.expression(1)]) for _ in range(2)}
        return {name: spec}

    def pipeline(self, depth: int = 0) -> Any:
        return [self.stage(depth) for _ in range(self.moment.choice([0, 1, 1, 2, 3]))]

    def anything(self) -> Any:
        """A value of one of all these kinds."""
        kind = self.moment.choice(
            [self.value, self.value, self.filter, self.update, self.expression, self.pipeline, self.stage]
        )
        return kind()

    def like(self, name: str) -> Any:
        """A value for a field of this name."""
        match name:
            case "filter" | "query" | "q" | "partialFilterExpression" | "validator":
                return self.filter()
            case "u" | "update" | "updateMods":
                return self.update()
            case "pipeline":
                return self.pipeline()
            case _:
                return self.anything()

    def mutant(self, command: Document) -> Document:
        """A command that was changed in a few places."""
        changed = copy.deepcopy(command)
        for _ in range(self.moment.choice([1, 1, 1, 2, 3])):
            places = list(_places(changed))
            holder, key = self.moment.choice(places)
            choice = self.moment.random()
            if choice < 0.7 or isinstance(holder, list):
                holder[key] = self.like(key) if isinstance(key, str) else self.anything()
            elif choice < 0.8 and len(changed) > 1 and key != next(iter(changed)):
                holder.pop(key, None)
            elif choice < 0.95:
                name, value = self.moment.choice(GENERIC)
                changed.setdefault(name, value if self.chance(0.7) else self.anything())
            else:
                holder[self.name()] = self.anything()
        return changed


def _places(value: Any) -> Any:
    if isinstance(value, dict):
        for key in list(value):
            yield value, key
            yield from _places(value[key])
    elif isinstance(value, list):
        for position in range(len(value)):
            yield value, position
            yield from _places(value[position])
