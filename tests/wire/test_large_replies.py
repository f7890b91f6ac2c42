"""Large replies are the same whichever way they are sent, and keep nobody waiting."""

import struct
from datetime import UTC, datetime, timedelta
from typing import Any

import bson
import pytest
from bson import Int64
from pymongo import MongoClient
from pymongo.database import Database

from bucketd.common.limits import BATCH_BYTES_MAX
from bucketd.kernels import crc32c
from support.server_process import ServerProcess
from support.wire_client import CHECKSUM_PRESENT, WireClient, body_section, message

START = datetime(2024, 1, 1, tzinfo=UTC)
Document = dict[str, Any]


@pytest.fixture
def measurements(database: Database[Document]) -> list[Document]:
    """Some megabytes of them."""
    database.create_collection("cpu", timeseries={"timeField": "time", "metaField": "host"})
    rows = [
        {
            "time": START + timedelta(seconds=number),
            "host": {"name": f"host {number % 3}", "text": "x" * 900},
            "_id": number,
            **({"value": number / 7, "flag": number % 2 == 0} if number % 5 else {"note": f"note {number % 4}"}),
        }
        for number in range(20_000)
    ]
    database["cpu"].insert_many(rows, ordered=False)
    return rows


def by_id(row: Document) -> int:
    return int(row["_id"])


@pytest.mark.parametrize("compressor", ["", "zlib", "zstd"])
def test_all_measurements_arrive(
    server: ServerProcess, database: Database[Document], measurements: list[Document], compressor: str
) -> None:
    options = {"compressors": compressor} if compressor else {}
    with MongoClient[Document](server.uri, tz_aware=True, **options) as client:
        found = list(client[database.name]["cpu"].find())
        assert sorted(found, key=by_id) == measurements
        chosen = list(client[database.name]["cpu"].find({"value": {"$gte": 1000}}))
        assert sorted(chosen, key=by_id) == [row for row in measurements if row.get("value", 0) >= 1000]
        # What is sent in large messages too.
        client[database.name]["copy"].insert_many(found)
        assert list(client[database.name]["copy"].find()) == found


def test_batches_hold_what_was_asked_for(
    server: ServerProcess, database: Database[Document], measurements: list[Document]
) -> None:
    with WireClient(server.port, database.name) as wire:
        reply = wire.ask({"find": "cpu", "batchSize": 7})
        seen = reply["cursor"]["firstBatch"]
        assert len(seen) == 7
        sizes: list[int | None] = [0, 1, 999, 3000, None]
        more: dict[str, Any] = {"getMore": reply["cursor"]["id"], "collection": "cpu"}
        lengths = []
        while reply["cursor"]["id"]:
            size = sizes[min(len(lengths), len(sizes) - 1)]
            reply = wire.ask({**more, "getMore": Int64(more["getMore"]), **({} if not size else {"batchSize": size})})
            batch = reply["cursor"]["nextBatch"]
            lengths.append(len(batch))
            seen += batch
            assert sum(len(bson.encode(row)) for row in batch) <= BATCH_BYTES_MAX
            if size and reply["cursor"]["id"]:
                assert len(batch) == size
        assert sorted(map(by_id, seen)) == list(range(len(measurements)))


def test_a_large_reply_has_a_checksum_where_the_request_has_one(
    server: ServerProcess, database: Database[Document], measurements: list[Document]
) -> None:
    def asked(flags: int) -> bytes:
        sections = body_section({"find": "cpu", "batchSize": 5000, "singleBatch": True, "$db": database.name})
        whole = message(sections, flags=flags, tail=b"\0\0\0\0" if flags else b"")
        whole = whole[:-4] + struct.pack("<I", crc32c(whole[:-4])) if flags else whole
        with WireClient(server.port) as wire:
            return wire.ask_raw(whole).raw

    plain, summed = asked(0), asked(CHECKSUM_PRESENT)
    assert len(plain) > 1_000_000
    assert summed[20:-4] == plain[20:]
    assert struct.unpack("<I", summed[-4:])[0] == crc32c(summed[:-4])


def test_others_are_answered_between_the_batches(
    server: ServerProcess, database: Database[Document], measurements: list[Document]
) -> None:
    with WireClient(server.port, database.name) as slow, WireClient(server.port) as other:
        slow.tell({"find": "cpu", "batchSize": 20_000}, flags=0)
        for _ in range(50):
            assert other.ask({"ping": 1})["ok"] == 1
        assert len(slow.receive().document["cursor"]["firstBatch"]) > 10_000
