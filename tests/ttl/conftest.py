"""What tests of expiry share."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bucketd.common.clock import TestClock
from bucketd.storage.checked_engine import CheckedEngine
from bucketd.storage.engine import Engine
from bucketd.storage.lmdb_engine import LmdbEngine
from support.expiry_lab import NOW_MS, THINGS, Lab, catalog_on
from support.memory_engine import MemoryEngine


@pytest.fixture(params=["lmdb", "memory"])
async def lab(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Lab]:
    inner: Engine = MemoryEngine() if request.param == "memory" else LmdbEngine(tmp_path, sync=False)
    engine = CheckedEngine(inner)
    catalog = catalog_on(engine)
    await catalog.create(THINGS, {})
    yield Lab(engine, catalog, TestClock(NOW_MS))
    await catalog.close()
    engine.close()
