"""A worker that creates, changes, renames and drops collections, with a model of what it should find."""

from copy import deepcopy
from typing import Any

from pymongo.database import Database

from support.crash_load import START, Document, Ledger, Worker

Model = dict[str, dict[str, Any]]
"""By name: kind, names of indexes (True where hidden), a number that collMod sets, count of documents."""


class Definer(Worker):
    """Every change is there whole or not at all."""

    kind = "definitions"

    def __init__(self, name: str, ledger: Ledger) -> None:
        super().__init__(name, ledger)
        self.count = 0
        self.model: Model = {}
        self.next: Model | None = None
        """What there is once the request under way has run."""

    def prepare(self, database: Database[Document]) -> None:
        self.model, self.next = {}, None

    def step(self, database: Database[Document]) -> int:
        after = deepcopy(self.model)
        names = sorted(after)
        choice = self.random.random()
        if len(names) < 3 or (choice < 0.2 and len(names) < 8):
            self._create(database, after)
        elif choice < 0.4:
            self._index(database, after, self.random.choice(names))
        elif choice < 0.6:
            self._modify(database, after, self.random.choice(names))
        elif choice < 0.7:
            self._fill(database, after, self.random.choice(names))
        elif choice < 0.85:
            self._rename(database, after, names)
        else:
            name = self.random.choice(names)
            del after[name]
            self.next = after
            database.drop_collection(name)
        self.model, self.next = after, None
        return 1

    def _create(self, database: Database[Document], after: Model) -> None:
        self.count += 1
        name = f"{self.name}_{self.count}"
        kind = self.random.choice(["collection", "timeseries", "view", "capped"])
        after[name] = {"kind": kind, "indexes": {}, "number": 0, "documents": 0}
        self.next = after
        match kind:
            case "timeseries":
                after[name]["number"] = 10
                database.create_collection(name, timeseries={"timeField": "t", "metaField": "m"}, expireAfterSeconds=10)
            case "view":
                after[name]["number"] = 1
                database.create_collection(name, viewOn="plain", pipeline=[{"$limit": 1}])
            case "capped":
                after[name]["number"] = 4096
                database.create_collection(name, capped=True, size=4096)
            case _:
                database.create_collection(name, validator={"never": {"$ne": 0}})

    def _index(self, database: Database[Document], after: Model, name: str) -> None:
        row = after[name]
        if row["kind"] == "view":
            return
        field = self.random.choice(["m", "m.a", "m.b"])
        index = f"{field}_1"
        if index in row["indexes"]:
            del row["indexes"][index]
            self.next = after
            database[name].drop_index(index)
        else:
            row["indexes"][index] = False
            self.next = after
            database[name].create_index(field)

    def _modify(self, database: Database[Document], after: Model, name: str) -> None:
        row = after[name]
        if row["indexes"] and self.random.random() < 0.5:
            index = self.random.choice(sorted(row["indexes"]))
            row["indexes"][index] = not row["indexes"][index]
            self.next = after
            database.command("collMod", name, index={"name": index, "hidden": row["indexes"][index]})
            return
        self.count += 1
        row["number"] = self.count
        self.next = after
        match row["kind"]:
            case "timeseries":
                database.command("collMod", name, expireAfterSeconds=self.count)
            case "view":
                database.command("collMod", name, viewOn="plain", pipeline=[{"$limit": self.count}])
            case "capped":
                row["number"] = -(-self.count // 256) * 256 + 4096
                database.command("collMod", name, cappedSize=row["number"])
            case _:
                database.command("collMod", name, validator={"never": {"$ne": self.count}})

    def _fill(self, database: Database[Document], after: Model, name: str) -> None:
        row = after[name]
        if row["kind"] not in ("collection", "timeseries"):
            return
        row["documents"] += 1
        self.next = after
        # So far in the future that nothing of a time series with a lifetime expires.
        database[name].insert_one({"t": START.replace(year=2100), "m": {"a": self.count, "b": [1, 2]}})

    def _rename(self, database: Database[Document], after: Model, names: list[str]) -> None:
        movable = [name for name in names if after[name]["kind"] in ("collection", "capped")]
        if not movable:
            return
        source = self.random.choice(movable)
        others = [name for name in movable if name != source]
        if others and self.random.random() < 0.5:
            target = self.random.choice(others)
        else:
            self.count += 1
            target = f"{self.name}_{self.count}"
        after[target] = after.pop(source)
        self.next = after
        database[source].rename(target, dropTarget=True)

    def check(self, database: Database[Document]) -> None:
        found = self._found(database)
        if found != self.model and found != self.next:
            for name in {*found, *self.model}:
                if found.get(name) != self.model.get(name) and found.get(name) != (self.next or {}).get(name):
                    self.ledger.lost.append(f"{name}: {found.get(name)}, was {self.model.get(name)}")
            if not self.ledger.lost:
                self.ledger.strange.append(f"{self.name}: half of a change: {found}, {self.model}, {self.next}")
        self.model, self.next = found, None

    def _found(self, database: Database[Document]) -> Model:
        found: Model = {}
        for row in database.list_collections():
            name, options = row["name"], row["options"]
            if not name.startswith(self.name + "_"):
                continue
            kind = "capped" if options.get("capped") else row["type"]
            number: int
            match kind:
                case "timeseries":
                    number = options["expireAfterSeconds"]
                case "view":
                    number = options["pipeline"][0]["$limit"]
                case "capped":
                    number = options["size"]
                case _:
                    number = options["validator"]["never"]["$ne"]
            indexes = {}
            if kind != "view":
                indexes = {
                    index["name"]: bool(index.get("hidden"))
                    for index in database[name].list_indexes()
                    if index["name"] in ("m_1", "m.a_1", "m.b_1")
                }
            count = database[name].count_documents({}) if kind in ("collection", "timeseries") else 0
            found[name] = {"kind": kind, "indexes": indexes, "number": number, "documents": count}
        return found
