"""Messages with flipped, missing and added bytes: the server answers or closes, and goes on serving everybody else."""

import random
import struct

import bson
import pytest

from bucketd.protocol.compression import COMPRESSORS, compress
from support.server_process import ServerProcess
from support.wire_client import (
    Closed,
    WireClient,
    body_section,
    message,
    query,
    sequence_section,
)

REQUESTS = {
    "ping": message(body_section({"ping": 1, "$db": "mutants"})),
    "find": message(body_section({"find": "c", "filter": {"a": {"$gt": 5}}, "sort": {"a": 1}, "$db": "mutants"})),
    "insert": message(
        body_section({"insert": "c", "ordered": False, "$db": "mutants"}),
        sequence_section("documents", [{"_id": number, "text": "x" * number} for number in range(5)]),
    ),
    "aggregate": message(
        body_section({"aggregate": "c", "pipeline": [{"$match": {}}, {"$count": "n"}], "cursor": {}, "$db": "mutants"})
    ),
    "hello": query("admin.$cmd", {"isMaster": 1, "client": {"driver": {"name": "x", "version": "1"}}}),
    "compressed": compress(message(body_section({"ping": 1, "$db": "mutants"})), COMPRESSORS[2]),
}
ROUNDS = 60


def mutate(content: bytes, moment: random.Random) -> bytes:
    """Change the message somewhere behind its length, and let the length agree again."""
    changed = bytearray(content)
    for _ in range(moment.randint(1, 4)):
        at = moment.randrange(4, len(changed))
        match moment.randrange(4):
            case 0:
                changed[at] ^= 1 << moment.randrange(8)
            case 1:
                changed[at] = moment.choice([0, 1, 0x7F, 0x80, 0xFF])
            case 2:
                del changed[at : at + moment.randint(1, 8)]
            case _:
                changed[at:at] = moment.randbytes(moment.randint(1, 8))
        if len(changed) < 16:
            changed += bytes(16 - len(changed))
    struct.pack_into("<i", changed, 0, len(changed))
    return bytes(changed)


@pytest.mark.parametrize("name", REQUESTS)
def test_mutants_harm_nobody(server: ServerProcess, name: str) -> None:
    moment = random.Random(name)
    before = len(server.errors())
    with WireClient(server.port, "mutants") as bystander:
        for _ in range(ROUNDS):
            with WireClient(server.port) as wire:
                wire.ask({"hello": 1, "compression": ["zlib"]})
                wire.send(mutate(REQUESTS[name], moment))
                wire.end_input()
                try:
                    wire.receive()
                except (Closed, bson.errors.InvalidBSON):
                    continue
            assert bystander.ask({"ping": 1})["ok"] == 1.0
    assert server.errors()[before:] == []
