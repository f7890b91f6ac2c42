"""`bucketd check`: whether a store that no server has open is whole, from its pages to its buckets."""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

import click

from ...catalog.catalog import Catalog
from ...catalog.checking import CollectionCheck
from ...catalog.collections import Collection
from ...catalog.store_check import StoreReport, check_store
from ...common.errors import MongoError
from ...storage.engine import Engine
from ...storage.errors import StorageError
from ...storage.lmdb_engine import LmdbEngine
from ...storage.lmdb_pages import PageReport
from ...storage.offline import check_pages, open_for_looking
from ..repairs import repair_collection
from ..services import partial_filter
from . import EXIT_NO_DATA, fail, json_option

_EXIT_DAMAGED: Final = 1


@click.command(short_help="Verify a store that no server has open.")
@click.option("--dbpath", required=True, metavar="DIR", type=click.Path(path_type=Path), help="Folder of the data.")
@click.option("--repair", is_flag=True, help="Make damaged indexes and wrong counts anew, and verify again.")
@json_option
def check(dbpath: Path, repair: bool, as_json: bool) -> None:
    """Verify the store in a folder: pages, free pages, catalog, documents, indexes, counts and buckets.

    No server may have it open; beside a server, the command `validate` verifies a collection.

    \b
    Exit code 0: whole. 1: damaged. 2: wrong options. 100: cannot be opened.
    """
    report: dict[str, Any] = {"dbpath": str(dbpath), "repaired": []}
    try:
        pages = check_pages(dbpath)
        found = None if pages.errors else _look(dbpath, quiet=as_json)
        if repair and found is not None and found.damaged:
            report["repaired"] = asyncio.run(_repair(dbpath, found.damaged))
            pages = check_pages(dbpath)
            found = _look(dbpath, quiet=as_json)
    except StorageError as error:
        fail(error, EXIT_NO_DATA, as_json=as_json)
    report |= _as_document(pages, found)
    if as_json:
        click.echo(json.dumps(report, indent=2))
    else:
        _print(report)
    sys.exit(0 if report["valid"] else _EXIT_DAMAGED)


def _look(dbpath: Path, *, quiet: bool) -> StoreReport:
    def progress(collection: Collection) -> None:
        if not quiet and sys.stderr.isatty():
            click.echo(f"checking {collection.namespace}", err=True)

    with open_for_looking(dbpath) as store, store.snapshot() as snapshot:
        # The catalog asks no more of an engine than snapshots, unless somebody changes something.
        catalog = Catalog(cast(Engine, store), partial_compiler=partial_filter)
        return check_store(snapshot, catalog, progress=progress)


async def _repair(dbpath: Path, damaged: list[CollectionCheck]) -> list[str]:
    """Repair what can be; returns what was done, and what could not be."""
    engine = LmdbEngine(dbpath)
    done = []
    try:
        catalog = Catalog(engine, partial_compiler=partial_filter)
        catalog.load(lambda key, error: None)
        for check in damaged:
            name = check.collection.namespace
            if not (check.broken_indexes or check.counts_are_wrong):
                done.append(f"{name}: nothing that can be made anew")
                continue
            try:
                await repair_collection(catalog, check)
            except MongoError as error:
                done.append(f"{name}: not repaired: {error.message}")
            else:
                parts = [*(f"index {index}" for index in sorted(check.broken_indexes))]
                parts += ["counts"] if check.counts_are_wrong else []
                done.append(f"{name}: made anew: {', '.join(parts)}")
        await catalog.swept()
        await catalog.close()
    finally:
        engine.close()
    return done


def _as_document(pages: PageReport, found: StoreReport | None) -> dict[str, Any]:
    return {
        "valid": not pages.errors and found is not None and found.valid,
        "pages": {
            "pageBytes": pages.page_bytes,
            "total": pages.pages,
            "used": pages.used,
            "free": pages.free,
            "lost": pages.lost,
            "transaction": pages.transaction,
            "entriesPerTable": pages.tables,
        },
        "collections": [] if found is None else found.collections,
        "errors": [*pages.errors, *(() if found is None else found.errors)],
        "warnings": [
            *([f"{pages.lost} pages belong to nothing; a backup that is restored has them not"] if pages.lost else ()),
            *(() if found is None else found.warnings),
        ],
    }


def _print(report: dict[str, Any]) -> None:
    pages = report["pages"]
    say: Callable[[str], None] = click.echo
    say(f"{pages['total']} pages of {pages['pageBytes']} bytes: {pages['used']} used, {pages['free']} free")
    for row in report["collections"]:
        entries = sum(row["keysPerIndex"].values())
        damage = len(row["errors"])
        state = "ok" if not damage else "DAMAGED"
        say(f"{row['ns']}: {row['records']} records, {entries} index entries: {state}")
        for text in row["errors"]:
            say(f"  error: {text}")
        for text in row["warnings"]:
            say(f"  warning: {text}")
    for name in ("repaired", "warnings", "errors"):
        for text in report[name]:
            say(f"{name.removesuffix('s')}: {text}")
    say("the store is whole" if report["valid"] else "THE STORE IS DAMAGED")
