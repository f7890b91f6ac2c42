"""`python -m benchmarks [--size smoke|default|large] [--only NAME …]`: run, and print a table."""

import argparse

from . import documents, expiry, ingest, pipelines
from .harness import Table
from .tsbs import Scale

SIZES = {"smoke": Scale(hosts=10, hours=1), "default": Scale(hosts=100, hours=12), "large": Scale(hosts=4000, hours=12)}


def main() -> None:
    """Run the chosen benchmarks one after another."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="default", help="how much data (default: %(default)s)")
    runs = {
        "start": lambda table, scale, smoke: ingest.start_up(table, 2 if smoke else 5),
        "pymongo": lambda table, scale, smoke: ingest.pymongo_batches(table, scale if smoke else Scale(100, 3)),
        "raw": lambda table, scale, smoke: ingest.raw_load(table, scale),
        "raw4": lambda table, scale, smoke: ingest.raw_load(table, scale, connections=4),
        "single": lambda table, scale, smoke: ingest.single_inserts(table, 0.5 if smoke else 3.0),
        "cardinality": lambda table, scale, smoke: ingest.cardinality(
            table, (1, 100) if smoke else (1, 1_000, 100_000)
        ),
        "documents": lambda table, scale, smoke: documents.documents(
            table, *(((1_000, 10_000), 1_000) if smoke else ())
        ),
        "pipelines": lambda table, scale, smoke: pipelines.pipelines(table, *((10_000, 0) if smoke else ())),
        "expiry": lambda table, scale, smoke: expiry.expiry(table, *((5_000, 100, 0.5) if smoke else ())),
    }
    parser.add_argument("--only", nargs="+", choices=runs, default=list(runs), help="which benchmarks")
    chosen = parser.parse_args()
    scale = SIZES[chosen.size]
    table = Table()
    table.add("data", f"{scale.measurements:,}", f"measurements: {scale.hosts} hosts x {scale.hours:g} h, 10 metrics")
    for name in chosen.only:
        runs[name](table, scale, chosen.size == "smoke")


if __name__ == "__main__":
    main()
