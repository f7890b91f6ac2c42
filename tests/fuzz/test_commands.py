"""Every command with arguments that nobody would send, at a live server: an answer each time, and never a fault of ours."""

import json
import os
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import bson
import pytest
from bson import json_util
from bson.codec_options import DatetimeConversion
from pymongo import MongoClient

from bucketd.server.commands.table import COMMANDS
from fuzz.templates import LEFT_ALONE, START, TEMPLATES
from support.fuzzing import SHAPES, Maker
from support.server_process import ServerProcess
from support.wire_client import Closed, WireClient

Document = dict[str, Any]

SECONDS = 15
SECONDS_NIGHTLY = int(os.environ.get("BUCKETD_TEST_FUZZ_SECONDS", "900"))
CORPUS = Path(__file__).with_name("corpus") / "commands.jsonl"
OF_OURS = (1, 8)
"""InternalError and UnknownError: what the server says of its own faults."""
_OPTIONS = json_util.JSONOptions(
    json_mode=json_util.JSONMode.CANONICAL, datetime_conversion=DatetimeConversion.DATETIME_MS
)


class Fuzzer:
    """Sends requests, and notes which of them found a fault."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.wire = WireClient(server.port, "fuzz")
        self.found: dict[str, Document] = {}
        self.requests = 0
        self.codes: Counter[int] = Counter()
        """How often each error was told, 0 for none."""
        self._errors = len(server.errors())

    def send(self, command: Document, *, retried: bool = False) -> None:
        try:
            raw = bson.encode(command)
        except (bson.errors.InvalidDocument, OverflowError, UnicodeEncodeError):
            return
        if len(raw) > 16_000_000:
            return
        self.requests += 1
        try:
            reply = self.wire.ask(command)
        except Closed:
            self.note("the connection was closed", command)
            self.wire = WireClient(self.server.port, "fuzz")
            return
        except bson.errors.InvalidBSON as error:
            self.note(f"the reply cannot be read: {error}", command)
            return
        except TimeoutError:
            # A machine that stands still for a while is no fault of the command: what hangs, hangs again.
            self.wire = WireClient(self.server.port, "fuzz")
            if retried:
                self.note("no answer", command)
            else:
                self.send(command, retried=True)
            return
        self.codes[reply.get("code", 0)] += 1
        if reply.get("code") in OF_OURS or any(row.get("code") in OF_OURS for row in _rows(reply)):
            self.note(str(reply.get("errmsg") or reply)[:200], command)
        if reply.get("ok") not in (0.0, 1.0):
            self.note(f"ok: {reply.get('ok')}", command)

    def note(self, what: str, command: Document) -> None:
        if what not in self.found:
            self.found[what] = command
            print(f"\n{what}\n    {json_util.dumps(command, json_options=_OPTIONS)[:100_000]}", flush=True)

    def tidy(self) -> None:
        """Undo what would stand in the way of what comes."""
        while self.wire.ask({"fsyncUnlock": 1, "$db": "admin"})["ok"] == 1.0:
            pass
        for setting in ({"profile": 0}, {"drop": "new"}, {"drop": "new2"}, {"drop": "o"}):
            self.wire.ask(setting)

    def check(self) -> None:
        for event in self.server.errors()[self._errors :]:
            self.found.setdefault(f"logged: {json.dumps(event)[-1500:]}", {})
        self.wire.close()
        assert self.found == {}, "\n".join(self.found)


def _rows(reply: Document) -> list[Document]:
    cursor = reply.get("cursor")
    rows = reply.get("writeErrors") or (cursor.get("firstBatch") if isinstance(cursor, dict) else None) or []
    return [row for row in rows if isinstance(row, dict) and "errmsg" in row]


def fill(client: MongoClient[Document], maker: Maker) -> None:
    """Collections with values of every kind."""
    fuzz = client["fuzz"]
    fuzz.create_collection("c")
    fuzz.create_collection("s", timeseries={"timeField": "t", "metaField": "m"})
    fuzz.create_collection("view", viewOn="c", pipeline=[{"$match": {"a": {"$ne": 5}}}])
    for number in range(60):
        row = {
            "_id": number,
            "a": maker.value(),
            "b": maker.value(),
            "n": number % 5,
            "words": "one two three",
            "m": {"x": number % 3},
        }
        fuzz["c"].insert_one({**row, "where": dict(SHAPES[number % 3])})
        fuzz["s"].insert_one(
            {"t": START, "m": maker.moment.choice([1, 2, {"x": 1}, None]), "v": maker.value(), "n": number}
        )
    for key in (
        [("a", 1)],
        [("m.x", 1), ("n", -1)],
        [("where", "2dsphere")],
        [("words", "text")],
        [("$**", 1)],
        [("b", "hashed")],
    ):
        try:
            fuzz["c"].create_index(key)
        except Exception as error:  # some value cannot be in some index
            print(error)
    fuzz["s"].create_index([("m", 1), ("t", -1)])


def run(server: ServerProcess, seconds: float, seed: int) -> None:
    moment = random.Random(seed)
    maker = Maker(moment)
    with MongoClient[Document](server.uri) as client:
        fill(client, maker)
        fuzzer = Fuzzer(server)
        names = [name for name in sorted(COMMANDS) if name not in LEFT_ALONE]
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            name = (
                moment.choice(("aggregate", "aggregate", "find", "update"))
                if maker.chance(0.7)
                else moment.choice(names)
            )
            templates = TEMPLATES.get(name) or [{name: 1}]
            command = maker.mutant(moment.choice(templates))
            if next(iter(command), None) in LEFT_ALONE or (command.get("fsync") and command.get("lock")):
                continue
            command.setdefault("$db", "admin" if COMMANDS[name].admin_only else "fuzz")
            if name == "setParameter":
                # Parameters may be set to what makes the next requests useless.
                command = {**command, "$db": "fuzz"}
            fuzzer.send(command)
            if fuzzer.requests % 200 == 0:
                fuzzer.tidy()
                if "c" not in client["fuzz"].list_collection_names():
                    client.drop_database("fuzz")
                    fill(client, maker)
        fuzzer.tidy()
        for row in client["fuzz"].list_collections(filter={"type": {"$ne": "view"}}):
            if not row["name"].startswith("system.buckets."):
                told = client["fuzz"].command("validate", row["name"])
                if not told["valid"]:
                    fuzzer.note(f"{row['name']}: {told['errors']}", {})
    print(
        f"\n{fuzzer.requests} requests in {seconds:.0f} s (seed {seed}): {fuzzer.codes[0]} ran, "
        f"{len(fuzzer.codes) - 1} kinds of errors, {len(fuzzer.found)} findings"
    )
    fuzzer.check()


def test_what_was_once_found_is_answered(server: ServerProcess) -> None:
    fuzzer = Fuzzer(server)
    for line in CORPUS.read_text().splitlines():
        if line:
            fuzzer.send(json_util.loads(line, json_options=_OPTIONS))
    fuzzer.check()


def test_no_request_finds_a_fault(start_server: Any) -> None:
    run(start_server(), SECONDS, seed=11)


@pytest.mark.nightly
@pytest.mark.timeout(0)
def test_no_request_finds_a_fault_in_a_long_night(start_server: Any) -> None:
    run(start_server(), SECONDS_NIGHTLY, seed=int.from_bytes(os.urandom(4), "big"))
