"""`python -m benchmarks [--size smoke|default|large] [--only NAME …] [--query NAME …]`: run, and print a table."""

import argparse
from pathlib import Path

from . import contest, documents, expiry, growth, ingest, iot, pipelines, profile
from .contender import Bucketd, Contender
from .harness import Table
from .peers.clickhouse import ClickHouse
from .peers.influxdb import InfluxDB
from .peers.mongomock_peer import Mongomock
from .peers.postgres import Postgres
from .peers.victoria import VictoriaMetrics
from .queries import QUERIES
from .tsbs import Scale

SIZES = {"smoke": Scale(hosts=10, hours=1), "default": Scale(hosts=100, hours=12), "large": Scale(hosts=4000, hours=12)}
CONTENDERS: list[type[Contender]] = [Bucketd, Postgres, ClickHouse, InfluxDB, VictoriaMetrics, Mongomock]


def main() -> None:
    """Run the chosen benchmarks one after another."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="default", help="how much data (default: %(default)s)")
    runs = {
        "start": lambda: ingest.start_up(table, 2 if smoke else 5),
        "queries": lambda: contest.queries(table, scale, contenders, asked, smoke),
        "growth": lambda: growth.growth(table, scale),
        "iot": lambda: iot.iot(table, *((10, 1) if smoke else ())),
        "pymongo": lambda: ingest.pymongo_batches(table, scale if smoke else Scale(100, 3)),
        "raw": lambda: ingest.raw_load(table, scale),
        "raw4": lambda: ingest.raw_load(table, scale, connections=4),
        "single": lambda: ingest.single_inserts(table, 0.5 if smoke else 3.0),
        "cardinality": lambda: ingest.cardinality(table, (1, 100) if smoke else (1, 1_000, 100_000)),
        "documents": lambda: documents.documents(table, *(((1_000, 10_000), 1_000) if smoke else ())),
        "pipelines": lambda: pipelines.pipelines(table, *((10_000, 0) if smoke else ())),
        "expiry": lambda: expiry.expiry(table, *((5_000, 100, 0.5) if smoke else ())),
    }
    parser.add_argument("--only", nargs="+", choices=runs, default=list(runs), help="which benchmarks")
    parser.add_argument("--query", nargs="+", choices=QUERIES, default=list(QUERIES), help="which of the queries")
    parser.add_argument("--peer", nargs="*", help="beside which peers (default: all that are installed)")
    parser.add_argument("--profile", action="store_true", help="show where the server's time goes, and nothing else")
    parser.add_argument("--json", type=Path, help="a file for the results")
    parser.add_argument("--markdown", type=Path, help="a page with marks between which the table is put")
    chosen = parser.parse_args()
    scale = SIZES[chosen.size]
    smoke = chosen.size == "smoke"
    asked = [QUERIES[name] for name in chosen.query]
    contenders = [
        contender
        for contender in CONTENDERS
        if contender is Bucketd or chosen.peer is None or contender.name in chosen.peer
    ]
    if chosen.profile:
        profile.profile(scale, asked)
        return
    table = Table()
    table.add("data", f"{scale.measurements:,}", f"measurements: {scale.hosts} hosts x {scale.hours:g} h, 10 metrics")
    for name in chosen.only:
        runs[name]()
    if chosen.json is not None:
        table.write_json(chosen.json)
    if chosen.markdown is not None:
        table.write_markdown(chosen.markdown)


if __name__ == "__main__":
    main()
