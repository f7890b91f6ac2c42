"""Load for a server that is going to be killed: workers that remember what they tried and what was acknowledged.

Each worker has one request under way at a time. When its connection breaks, everything that was acknowledged before has to be
there, and of the request that was under way all or (where many documents make up one request) any part.
"""

import random
import threading
from abc import abstractmethod
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import ConnectionFailure

Document = dict[str, Any]

START = datetime(2024, 1, 1, tzinfo=UTC)
OLD = datetime(2020, 1, 1, tzinfo=UTC)
FRESH = datetime(2037, 1, 1, tzinfo=UTC)


class Ledger:
    """What all workers of a test did."""

    def __init__(self) -> None:
        self.kills = 0
        self.acknowledged = 0
        """Writes: documents, measurements and changes of collections and indexes."""
        self.lost: list[str] = []
        self.doubled: list[str] = []
        self.strange: list[str] = []
        """Things that nobody wrote, counts that are wrong, collections that are not whole."""
        self.by_kind: Counter[str] = Counter()

    def clean(self) -> bool:
        return not (self.lost or self.doubled or self.strange)

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.by_kind.items()))
        return (
            f"{self.kills} kills, {self.acknowledged} acknowledged ({kinds}), "
            f"{len(self.lost)} lost, {len(self.doubled)} doubled, {len(self.strange)} broken invariants"
        )


class Worker:
    """One client. `round` runs it until the server dies; `check` compares afterwards, and goes on from what is there."""

    kind = ""

    def __init__(self, name: str, ledger: Ledger) -> None:
        self.name = name
        self.ledger = ledger
        self.random = random.Random(name)
        self.first = threading.Event()
        self.failure: BaseException | None = None
        self._thread: threading.Thread | None = None

    def prepare(self, database: Database[Document]) -> None:
        """Make what the worker needs; before the first round, and after a clearing."""

    @abstractmethod
    def step(self, database: Database[Document]) -> int:
        """Do one thing; returns how many writes were acknowledged by it."""

    @abstractmethod
    def check(self, database: Database[Document]) -> None:
        """Compare what is there with what should be."""

    def begin(self, uri: str) -> None:
        self.first.clear()
        self._thread = threading.Thread(target=self._run, args=(uri,), name=self.name)
        self._thread.start()

    def end(self) -> None:
        assert self._thread is not None
        self._thread.join()
        if self.failure is not None:
            raise self.failure

    def _run(self, uri: str) -> None:
        try:
            with MongoClient[Document](uri, retryWrites=False, serverSelectionTimeoutMS=2000) as client:
                while True:
                    count = self.step(client["crash"])
                    self.ledger.acknowledged += count
                    self.ledger.by_kind[self.kind] += count
                    self.first.set()
        except ConnectionFailure:
            return
        except BaseException as failure:
            self.failure = failure
        finally:
            self.first.set()


class Inserter(Worker):
    """New measurements and new documents, in batches of several sizes."""

    kind = "inserted"

    def __init__(self, name: str, ledger: Ledger) -> None:
        super().__init__(name, ledger)
        self.count = 0
        self.tried: set[str] = set()
        self.known: set[str] = set()

    def prepare(self, database: Database[Document]) -> None:
        self.tried, self.known = set(), set()
        if "measured" not in database.list_collection_names():
            database.create_collection("measured", timeseries={"timeField": "time", "metaField": "sensor"})

    def step(self, database: Database[Document]) -> int:
        ids = [f"{self.name}/{self.count + i}" for i in range(self.random.choice([1, 3, 50]))]
        self.count += len(ids)
        self.tried.update(ids)
        collection = database["measured" if self.random.random() < 0.7 else "plain"]
        collection.insert_many([self.document(name) for name in ids], ordered=False)
        self.known.update(ids)
        return len(ids)

    def document(self, name: str) -> Document:
        return {
            "_id": name,
            "owner": self.name,
            "time": START + timedelta(milliseconds=self.random.randrange(7_200_000)),
            "sensor": self.random.choice(["a", "b", {"rack": 1}]),
            "value": self.random.gauss(0, 1),
            "note": self.random.choice(["", "text", None, 5]),
        }

    def check(self, database: Database[Document]) -> None:
        stored = Counter(
            row["_id"]
            for name in ("measured", "plain")
            for row in database[name].find({"owner": self.name}, {"_id": 1})
        )
        self.ledger.doubled += [name for name, times in stored.items() if times > 1]
        self.ledger.lost += sorted(self.known - stored.keys())
        self.ledger.strange += [f"{name}: never sent" for name in stored.keys() - self.tried]
        self.known = set(stored)


class Changer(Worker):
    """Documents of its own that are counted up, one by one and all at once, and deleted; each change exactly once."""

    kind = "changed"

    def __init__(self, name: str, ledger: Ledger) -> None:
        super().__init__(name, ledger)
        self.count = 0
        self.values: dict[str, int] = {}
        self.may_be: dict[str, set[int | None]] = {}
        """Of the request under way: what else a document may be, None where it may be missing."""

    def prepare(self, database: Database[Document]) -> None:
        self.values, self.may_be = {}, {}

    def step(self, database: Database[Document]) -> int:
        collection = database["changed"]
        choice = self.random.random()
        if len(self.values) < 5 or choice < 0.2:
            name = f"{self.name}/{self.count}"
            self.count += 1
            self.may_be = {name: {0, None}}
            collection.insert_one({"_id": name, "owner": self.name, "n": 0, "all": [0]})
            self.values[name] = 0
            return 1
        if choice < 0.6:
            name = self.random.choice(sorted(self.values))
            self.may_be = {name: {self.values[name] + 1}}
            collection.update_one({"_id": name}, {"$inc": {"n": 1}, "$push": {"all": self.values[name] + 1}})
            self.values[name] += 1
            return 1
        if choice < 0.7:
            name = self.random.choice(sorted(self.values))
            self.may_be = {name: {self.values[name] + 1}}
            collection.find_one_and_update({"_id": name}, {"$inc": {"n": 1}, "$push": {"all": self.values[name] + 1}})
            self.values[name] += 1
            return 1
        if choice < 0.85:
            self.may_be = {name: {value + 1} for name, value in self.values.items()}
            collection.update_many(
                {"owner": self.name},
                [{"$set": {"n": {"$add": ["$n", 1]}}}, {"$set": {"all": {"$range": [0, {"$add": ["$n", 1]}]}}}],
            )
            self.values = {name: value + 1 for name, value in self.values.items()}
            return len(self.values)
        name = self.random.choice(sorted(self.values))
        self.may_be = {name: {None}}
        collection.delete_one({"_id": name})
        del self.values[name]
        return 1

    def check(self, database: Database[Document]) -> None:
        stored = {row["_id"]: row for row in database["changed"].find({"owner": self.name})}
        for name in {*stored, *self.values}:
            row = stored.get(name)
            found = None if row is None else row["n"]
            expected = self.values.get(name)
            if found == expected or found in self.may_be.get(name, ()):
                if row is not None and row["all"] != list(range(row["n"] + 1)):
                    self.ledger.doubled.append(f"{name}: n is {row['n']} and all is {row['all']}")
                continue
            if found is None:
                self.ledger.lost.append(f"{name}: gone, was {expected}")
            elif expected is None:
                self.ledger.lost.append(f"{name}: its deletion")
            elif found < expected:
                self.ledger.lost.append(f"{name}: {found}, was {expected}")
            else:
                self.ledger.doubled.append(f"{name}: {found}, was {expected}")
        self.values = {name: row["n"] for name, row in stored.items()}
        self.may_be = {}


class Deleter(Worker):
    """Series of measurements that come and are deleted again, and whose meta values change."""

    kind = "series"

    def __init__(self, name: str, ledger: Ledger) -> None:
        super().__init__(name, ledger)
        self.count = 0
        self.alive: dict[str, set[str]] = {}
        """Ids of the measurements of each series."""
        self.under_way: set[str] = set()
        """Ids of which nobody knows."""

    def prepare(self, database: Database[Document]) -> None:
        self.alive, self.under_way = {}, set()
        if "series" not in database.list_collection_names():
            database.create_collection("series", timeseries={"timeField": "t", "metaField": "m"})

    def step(self, database: Database[Document]) -> int:
        collection = database["series"]
        if len(self.alive) < 3 or self.random.random() < 0.5:
            series = self.random.choice([*self.alive, f"{self.name}/{self.count}"])
            ids = [f"{self.name}/{self.count + i}" for i in range(20)]
            self.count += len(ids)
            self.under_way = set(ids)
            collection.insert_many(
                [
                    {"_id": name, "m": series, "owner": self.name, "t": START + timedelta(seconds=position)}
                    for position, name in enumerate(ids)
                ],
                ordered=self.random.random() < 0.5,
            )
            self.alive.setdefault(series, set()).update(ids)
        else:
            series = self.random.choice(sorted(self.alive))
            ids = sorted(self.alive[series])
            self.under_way = set(ids)
            if self.random.random() < 0.5:
                collection.delete_many({"m": series})
                del self.alive[series]
            else:
                collection.update_many({"m": series}, {"$set": {"m": series + "'"}})
                self.alive.setdefault(series + "'", set()).update(self.alive.pop(series))
        self.under_way = set()
        return len(ids)

    def check(self, database: Database[Document]) -> None:
        stored = Counter(row["_id"] for row in database["series"].find({"owner": self.name}, {"_id": 1}))
        series = {row["_id"]: row["m"] for row in database["series"].find({"owner": self.name}, {"m": 1})}
        expected = {name: series_name for series_name, names in self.alive.items() for name in names}
        self.ledger.doubled += [name for name, times in stored.items() if times > 1]
        sure = expected.keys() - self.under_way
        self.ledger.lost += [f"{name} of {expected[name]}" for name in sorted(sure - stored.keys())]
        self.ledger.lost += [f"deletion of {name}" for name in stored.keys() - expected.keys() - self.under_way]
        self.ledger.strange += [
            f"{name} is of {series[name]}" for name in sure & series.keys() if series[name] != expected[name]
        ]
        self.alive = {}
        for name, series_name in series.items():
            self.alive.setdefault(series_name, set()).add(name)
        self.under_way = set()


class Indexer(Worker):
    """Indexes on what others write to, made and dropped again."""

    kind = "indexes"
    WANTED = (("plain", "value", False), ("plain", "note", True), ("measured", "value", False), ("changed", "n", False))

    def __init__(self, name: str, ledger: Ledger) -> None:
        super().__init__(name, ledger)
        self.there: set[tuple[str, str, bool]] = set()
        self.under_way: tuple[str, str, bool] | None = None

    def prepare(self, database: Database[Document]) -> None:
        self.there = set()

    def step(self, database: Database[Document]) -> int:
        self.under_way = one = self.random.choice(self.WANTED)
        collection, field, sparse = one
        if one in self.there:
            database[collection].drop_index(f"{field}_1")
        else:
            database[collection].create_index(field, sparse=sparse)
        self.there ^= {one}
        self.under_way = None
        return 1

    def check(self, database: Database[Document]) -> None:
        for one in self.WANTED:
            collection, field, _ = one
            found = f"{field}_1" in database[collection].index_information()
            if found != (one in self.there) and one != self.under_way:
                self.ledger.lost.append(f"index {field} of {collection}: {'its drop' if found else 'gone'}")
            self.there = self.there | {one} if found else self.there - {one}
        self.under_way = None


class Expirer(Worker):
    """What has expired goes, in passes that are cut short; what has not stays."""

    kind = "expiring"

    def __init__(self, name: str, ledger: Ledger) -> None:
        super().__init__(name, ledger)
        self.count = 0
        self.kept: set[str] = set()
        self.tried: set[str] = set()

    def prepare(self, database: Database[Document]) -> None:
        self.kept, self.tried = set(), set()
        database["expiring"].create_index("at", expireAfterSeconds=3600)
        if "expiring_series" not in database.list_collection_names():
            database.create_collection(
                "expiring_series", timeseries={"timeField": "at", "metaField": "m"}, expireAfterSeconds=3600
            )

    def step(self, database: Database[Document]) -> int:
        if self.random.random() < 0.3:
            database.client.admin.command("ttlPass")
            return 0
        ids = [f"{self.name}/{self.count + i}" for i in range(40)]
        self.count += len(ids)
        kept = set(ids[::4])
        self.tried |= kept
        database[self.random.choice(["expiring", "expiring_series"])].insert_many(
            [{"_id": name, "m": name in kept, "at": FRESH if name in kept else OLD} for name in ids], ordered=False
        )
        self.kept |= kept
        return len(ids)

    def check(self, database: Database[Document]) -> None:
        database.client.admin.command("ttlPass")
        rows = [row for name in ("expiring", "expiring_series") for row in database[name].find({})]
        stored = Counter(row["_id"] for row in rows)
        self.ledger.strange += [f"{row['_id']} has not expired" for row in rows if not row["m"]]
        self.ledger.lost += sorted(self.kept - stored.keys())
        self.ledger.doubled += [name for name, times in stored.items() if times > 1]
        self.ledger.strange += [f"{name}: never sent" for name in stored.keys() - self.tried if name]
        self.kept = set(stored) & self.tried
