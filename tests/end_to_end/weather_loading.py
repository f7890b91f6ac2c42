"""The example's loader, for tests: `examples/` is no package."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

from pymongo.database import Database

EXAMPLE = Path(__file__).parents[2] / "examples" / "weather.py"


def example_module() -> ModuleType:
    """The example, imported from its file."""
    spec = importlib.util.spec_from_file_location("weather_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load_weather(database: Database[Any]) -> None:
    """Load the example's collections."""
    example_module().load(database)
