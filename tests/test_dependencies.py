"""What the image installs is locked, and every licence in it is one that may be passed on. Works without a network."""

import json
import re
import subprocess
import tomllib
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]

PERMITTED = re.compile(
    r"apache|mit\b|mit license|bsd|psf|python software foundation|cnri|zlib|isc|unicode|unlicense|0bsd|cc0|bsl-1",
    re.IGNORECASE,
)
"""Licences that ask for no more than to be named."""

# Its licence is OLDAP-2.8, which is of the same kind: a notice, and no use of the name.
KNOWN = {"lmdb": "OLDAP-2.8"}


def locked() -> dict[str, list[Requirement]]:
    """The lines of the lock file by package; each is a version, with hashes after it."""
    found: dict[str, list[Requirement]] = {}
    for line in re.findall(r"^([A-Za-z0-9].*?)(?: \\)?$", (ROOT / "requirements.lock").read_text(), flags=re.MULTILINE):
        requirement = Requirement(line)
        found.setdefault(canonicalize_name(requirement.name), []).append(requirement)
    return found


def wanted() -> list[Requirement]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [Requirement(text) for text in project["dependencies"]]


def test_every_dependency_is_locked_to_a_version_that_will_do() -> None:
    lines = locked()
    for requirement in wanted():
        name = canonicalize_name(requirement.name)
        assert name in lines, f"{name} is not in requirements.lock: make lock"
        for line in lines[name]:
            (pin,) = line.specifier
            assert pin.operator == "=="
            assert requirement.specifier.contains(pin.version), f"{line} is not {requirement}: make lock"


def test_every_locked_version_has_hashes() -> None:
    blocks = re.split(r"\n(?=[A-Za-z0-9])", (ROOT / "requirements.lock").read_text().strip())
    assert len(blocks) == sum(map(len, locked().values()))
    for block in blocks:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", block), block.splitlines()[0]


@pytest.mark.parametrize("name", sorted(locked()))
def test_licences_of_packages(name: str) -> None:
    try:
        told = metadata(name)
    except ModuleNotFoundError:
        pytest.skip(f"{name} is not for this version of Python")
    classifiers = [text for text in told.get_all("Classifier", []) if text.startswith("License ::")]
    licence = " ".join([told.get("License-Expression") or "", (told.get("License") or "")[:200], *classifiers])
    assert PERMITTED.search(licence) or name in KNOWN, f"{name}: {licence}"


def test_licences_of_crates() -> None:
    finished = subprocess.run(
        ["cargo", "metadata", "--format-version", "1", "--locked", "--offline"],
        cwd=ROOT / "kernels",
        capture_output=True,
        text=True,
    )
    if finished.returncode != 0:
        pytest.skip("the sources of the crates are not here")
    for package in json.loads(finished.stdout)["packages"]:
        licence = package.get("license") or ""
        if package["source"] is not None:
            assert PERMITTED.search(licence), f"{package['name']}: {licence}"
