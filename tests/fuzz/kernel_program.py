"""The kernels' entry points with bytes that were changed: `python -m fuzz.kernel_program SECONDS SEED FOLDER [CORPUS]`.

A process of its own, since what it looks for may end it: an answer or a ValueError is right, and anything else (a panic, memory
beyond the limit, an input that takes seconds) is a finding, whose input is left in FOLDER.
"""

import faulthandler
import mmap
import random
import resource
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bson
import numpy as np

from bucketd import kernels
from support.fuzzing import SHAPES, Maker

MEMORY_BYTES = 2 << 30
SLOW_SECONDS = 2.0
STUCK_SECONDS = 30.0
ENTRIES_MAX = 100_000
LAST_BYTES = 1 << 20
RUN = {"span_ms": 3_600_000, "max_count": 1000, "effective_max": 128_000, "absolute_max": 12_000_000, "min_count": 10}

Target = Callable[[bytes], object]


def _unpack_columns(raw: bytes) -> None:
    columns = kernels.unpack_columns([raw], "t")
    for field in columns.fields:
        try:
            kind, values, _ = columns.column(field)
        except KeyError:
            # A name that is no UTF-8 is shown with signs in its place.
            assert "\ufffd" in field
            continue
        if kind == 2:
            columns.strings(field)
        if kind == 255:
            columns.raw(field)
        assert len(values) in (len(columns), len(columns) + 1)
    columns.build_rows(np.arange(len(columns)), "m").raws()


def _partition(raw: bytes) -> None:
    batch = kernels.partition(raw, "t", "m")
    for run in batch.runs:
        builder = kernels.BucketBuilder("t", run.meta, bytes(12), run.first_ms // 3_600_000 * 3_600_000)
        builder.append_run(run, 0, **RUN)
        document = builder.document()
        kernels.unpack_rows(document, "t", "m")
        kernels.BucketBuilder.from_document(document, "t")


def _reopen(raw: bytes) -> None:
    builder = kernels.BucketBuilder.from_document(raw, "t")
    builder.clone().document()


def _keep(raw: bytes) -> None:
    kernels.keep_rows(raw, "t", b"\0\1\1\0" * 5)


def _compare(raw: bytes) -> None:
    half = len(raw) // 2
    kernels.compare_values(raw[:half], raw[half:])


def _column(raw: bytes) -> None:
    entries = kernels.column_decode(raw, ENTRIES_MAX)
    if len(entries) < 2000:
        again = kernels.column_encode(entries)
        assert kernels.column_decode(again, ENTRIES_MAX) == entries


def _entries(raw: bytes) -> None:
    half = len(raw) // 2
    READER.documents([(raw[:half], raw[half:]), (raw, b"\1\2")])


TEXTS = kernels.TextKeyMaker([("n", False)], [], [("words", 2.0)], 1.0, "english", "language")
READER = kernels.IndexEntryReader(["a", "b"], [False, True], [True, True])
SEARCH = kernels.TextSearch(TEXTS, 'one -two "three four"', "english", False, False)
SPHERE = kernels.SphereRegion.of_cap((1.0, 0.0, 0.0), 0.5)
FILTER = kernels.RawFilter(("and", [("exists", ["a"], True), ("compare", ["b", "c"], "$gte", (16, b"\1\0\0\0"))]))


def _makers() -> list[Target]:
    makers: list[Any] = [
        kernels.IndexKeyMaker(["a", "b.0", "m.x"], [False, True, False]),
        kernels.IndexKeyMaker(["a.b"], [True], True),
        kernels.IndexKeyMaker(["_id", "a"], [False, False], False, 1),
        kernels.WildcardKeyMaker([("n", False)], [], "", False, [], True),
        kernels.SphereKeyMaker([("where", "2dsphere", False), ("a", None, True)], False),
        kernels.SphereKeyMaker([("data.where", "2dsphere_bucket", False)], True),
        kernels.FlatKeyMaker("where", 1, 26, -180.0, 180.0),
        TEXTS,
    ]
    return [maker.keys for maker in makers] + [makers[0].rows, makers[1].typed_keys]


OF_DOCUMENTS: list[Target] = [
    kernels.validate_document,
    lambda raw: kernels.document_shape(raw, 180),
    kernels.key_string,
    lambda raw: kernels.key_string(raw, [True, False]),
    kernels.key_of_id,
    *_makers(),
    kernels.split_documents,
    kernels.array_to_documents,
    kernels.with_id,
    lambda raw: kernels.find_field(raw, "a"),
    _compare,
    _partition,
    lambda raw: SEARCH.scores([raw]),
    kernels.SphereRegion.of_geometry,
    SPHERE.holds,
    SPHERE.meets,
    lambda raw: kernels.cover_geometry(raw, 20),
    lambda raw: FILTER.verdicts([raw]),
    _entries,
    kernels.fingerprint,
    kernels.cap_key,
]
OF_BUCKETS: list[Target] = [
    lambda raw: kernels.unpack_rows(raw, "t", "m"),
    lambda raw: kernels.unpack_many([raw, raw], "t", "m", ["t", "v"]).raws(),
    lambda raw: kernels.unpack_rows(raw, "t", "m", None, ["v"]),
    lambda raw: kernels.merge_buckets([raw, raw], "t", "m", rounding_ms=60_000, version=2, **RUN),
    _unpack_columns,
    lambda raw: kernels.bucket_summary(raw, "t"),
    lambda raw: kernels.validate_bucket(raw, "t", "m", 3_600_000, 60_000),
    _reopen,
    _keep,
    kernels.validate_document,
]
OF_COLUMNS: list[Target] = [_column]


def seeds(maker: Maker) -> dict[str, list[bytes]]:
    """Whole documents, buckets and columns to begin with."""
    documents, buckets, columns = [], [], []
    for number in range(60):
        row = {
            "_id": number,
            "a": maker.value(),
            "b": maker.value(),
            "m": {"x": [1, {"y": 2}]},
            "words": "one two",
            "n": 1,
        }
        documents.append(bson.encode({**row, "where": SHAPES[number % len(SHAPES)], "language": "german"}))
        documents.append(bson.encode({"x": SHAPES[number % len(SHAPES)]}))
        documents.append(bson.encode({"0": {"a": 1}, "1": {"b": maker.value()}}))
    for version in (1, 2):
        for _ in range(20):
            kind = maker.moment.choice(
                [maker.value, lambda: maker.moment.gauss(0, 1), lambda: maker.moment.randrange(100)]
            )
            rows = [
                bson.encode(
                    {
                        "_id": n,
                        "t": bson.DatetimeMS(n * 1000),
                        "m": 1,
                        "v": kind(),
                        "w": {"x": n, "y": [n, "z"]},
                        "s": "abc" * (n % 3),
                    }
                )
                for n in range(maker.moment.choice([1, 5, 60]))
            ]
            builder = kernels.BucketBuilder("t", b"\x10\1\0\0\0", bytes(12), 0, version)
            for run in kernels.partition(b"".join(rows), "t", "m").runs:
                builder.append_run(run, 0, **RUN)
            if builder.count:
                buckets.append(builder.document())
    for _ in range(40):
        values = [_entry(maker.value()) if maker.chance(0.9) else None for _ in range(maker.moment.choice([1, 3, 30]))]
        columns.append(kernels.column_encode(values))
        number = maker.moment.randrange(2**40)
        columns.append(kernels.column_encode([_entry(bson.Int64(number + step * 7)) for step in range(200)]))
        columns.append(kernels.column_encode([_entry(step / 8) for step in range(50)]))
    return {"documents": documents, "buckets": buckets, "columns": columns}


def _entry(value: Any) -> bytes:
    raw = bson.encode({"": value})
    return raw[4:5] + raw[6:-1]


def changed(raw: bytes, other: bytes, moment: random.Random) -> bytes:
    """The bytes with a few of them flipped, replaced, missing, added, or taken from others."""
    content = bytearray(raw)
    for _ in range(moment.choice([1, 1, 2, 3, 8])):
        at = moment.randrange(len(content) + 1)
        match moment.randrange(8):
            case 0 if at < len(content):
                content[at] ^= 1 << moment.randrange(8)
            case 1 if at < len(content):
                content[at] = moment.choice(
                    [0, 1, 2, 3, 4, 5, 7, 0x0F, 0x7F, 0x80, 0x90, 0xD0, 0xF0, 0xF1, 0xFF, moment.randrange(256)]
                )
            case 2 if at + 4 <= len(content):
                length = moment.choice(
                    [0, -1, 1, 4, 5, 2**31 - 1, -(2**31), len(content), len(content) - at, moment.randrange(1000)]
                )
                content[at : at + 4] = length.to_bytes(4, "little", signed=True)
            case 3 if at + 8 <= len(content):
                # A block of Simple-8b: a run of many, or any selector.
                block = moment.getrandbits(60) << 4 | moment.randrange(16)
                content[at : at + 8] = moment.choice(
                    [block, 0xFF, 0xF0 | 15, 2**64 - 1, moment.getrandbits(64)]
                ).to_bytes(8, "little")
            case 4:
                del content[at : at + moment.choice([1, 2, 8, 30])]
            case 5:
                content[at:at] = moment.randbytes(moment.choice([1, 2, 8]))
            case 6:
                start = moment.randrange(len(other) + 1)
                content[at:at] = other[start : start + moment.choice([1, 9, 40])]
            case _:
                content = content[:at]
    if len(content) >= 4 and moment.random() < 0.6:
        # Most readers look no further where the length is wrong.
        content[:4] = len(content).to_bytes(4, "little")
    return bytes(content)


def main() -> None:
    seconds, seed, folder = float(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    (folder / "last").write_bytes(bytes(LAST_BYTES))
    with open(folder / "last", "r+b") as file:
        last = mmap.mmap(file.fileno(), LAST_BYTES)
    moment = random.Random(seed)
    kinds = {"documents": OF_DOCUMENTS, "buckets": OF_BUCKETS, "columns": OF_COLUMNS}
    inputs = findings = refused = 0
    found: set[str] = set()

    def run(kind: str, position: int, raw: bytes) -> None:
        nonlocal inputs, findings, refused
        inputs += 1
        # Where the process ends, the file tells with what.
        note = b"%s %d %d " % (kind.encode(), position, len(raw)) + raw[: LAST_BYTES - 100]
        last[: len(note)] = note
        faulthandler.dump_traceback_later(STUCK_SECONDS, exit=True)
        began = time.monotonic()
        try:
            kinds[kind][position](raw)
        except ValueError:
            refused += 1
        except BaseException:
            told = traceback.format_exc().splitlines()[-1][:300]
            if told not in found:
                found.add(told)
                findings += 1
                print(f"FOUND {told}\n{kind} {position} {raw.hex()}", flush=True)
        if time.monotonic() - began > SLOW_SECONDS:
            findings += 1
            print(f"SLOW {time.monotonic() - began:.1f} s\n{kind} {position} {raw.hex()[:20000]}", flush=True)

    for path in sys.argv[4:]:
        for line in Path(path).read_text().splitlines():
            kind, _, content = line.split("#")[0].strip().partition(" ")
            if kind:
                for position in range(len(kinds[kind])):
                    run(kind, position, bytes.fromhex(content))
    pool = seeds(Maker(moment))
    for kind, raws in pool.items():
        for raw in raws:
            for position in range(len(kinds[kind])):
                run(kind, position, raw)
    until = time.monotonic() + seconds
    weights = {"documents": 4, "buckets": 4, "columns": 3}
    while time.monotonic() < until:
        kind = moment.choices(list(weights), list(weights.values()))[0]
        raw = changed(moment.choice(pool[kind]), moment.choice(pool[moment.choice(list(pool))]), moment)
        for position in moment.sample(range(len(kinds[kind])), min(4, len(kinds[kind]))):
            run(kind, position, raw)
        if len(pool[kind]) < 2000 and moment.random() < 0.02:
            pool[kind].append(raw)
    faulthandler.cancel_dump_traceback_later()
    print(f"{inputs} inputs in {seconds:.0f} s (seed {seed}): {refused} refused, {findings} findings")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
