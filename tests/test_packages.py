"""The list of packages that are installed is the list of those that there are."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
NOT_INSTALLED = ("benchmarks", "tests", "build", "docker")


def test_every_package_is_installed() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    found = {"bucketd"}
    for path in ROOT.rglob("__init__.py"):
        parts = path.parent.relative_to(ROOT).parts
        if parts and parts[0] not in NOT_INSTALLED and not parts[0].startswith("."):
            found.add(".".join(("bucketd", *parts)))
    assert found == set(settings["tool"]["setuptools"]["packages"])
