"""mongomock: an imitation within the process, so that nothing travels; it has no time series and few expressions."""

import importlib.util
import time
from typing import Any

import bson
import numpy as np
from numpy.typing import NDArray

from ..answers import Answer
from ..contender import Contender, host_number
from ..loading import Load
from ..queries import Ask, Query
from ..tsbs import METRICS, Scale, encoded

COUNT_MAX = 50_000


class Mongomock(Contender):
    """Ordinary documents in a list; asked only what it knows, and only where there are few of them."""

    name = "mongomock"

    @classmethod
    def missing(cls) -> str | None:
        """See `Contender.missing`."""
        return None if importlib.util.find_spec("mongomock") else "mongomock is not installed"

    @classmethod
    def refuses(cls, scale: Scale) -> str | None:
        """See `Contender.refuses`."""
        return None if scale.measurements <= COUNT_MAX else f"takes part with up to {COUNT_MAX:,} measurements"

    def start(self) -> None:
        """See `Contender.start`."""
        import mongomock

        self.collection: Any = mongomock.MongoClient()["bench"]["cpu"]

    def stop(self) -> None:
        """See `Contender.stop`."""

    def load(self, scale: Scale, values: NDArray[np.uint8]) -> Load:
        """See `Contender.load`."""
        made = [[bson.decode(raw) for raw in raws] for raws in encoded(scale, values)]
        cpu, started = time.process_time(), time.perf_counter()
        for documents in made:
            self.collection.insert_many(documents)
        return Load(scale.measurements, time.perf_counter() - started, time.process_time() - cpu)

    def answers(self, query: Query) -> bool:
        """See `Contender.answers`."""
        return query.kind in ("high", "count", "all")

    def fetch(self, query: Query, ask: Ask) -> list[Any]:
        """See `Contender.fetch`."""
        match query.kind:
            case "count":
                return [self.collection.count_documents({})]
            case "all":
                return list(self.collection.find({}))
        # It compares datetimes alone.
        window = {key: bound.as_datetime().replace(tzinfo=None) for key, bound in ask.window.items()}
        condition: dict[str, Any] = {"time": window, "usage_user": {"$gt": 90.0}}
        if ask.hosts:
            condition["tags.hostname"] = {"$in": [f"host_{host}" for host in ask.hosts]}
        return list(self.collection.find(condition))

    def read(self, query: Query, fetched: list[Any]) -> Answer:
        """See `Contender.read`."""
        if query.kind == "count":
            return np.array([fetched])
        epoch = bson.DatetimeMS(0).as_datetime().replace(tzinfo=None)
        rows = [
            [
                round((row["time"] - epoch).total_seconds() * 1000),
                host_number(row["tags"]["hostname"]),
                *(row[name] for name in METRICS),
            ]
            for row in fetched
        ]
        return np.array(rows)

    def stored_bytes(self) -> int:
        """See `Contender.stored_bytes`: it stores nothing."""
        return 0
