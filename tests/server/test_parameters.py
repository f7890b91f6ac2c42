"""Server parameters: types, ranges, when each can be set."""

from typing import Any

import pytest
from bson import Decimal128, Int64

from bucketd.common.config import SETTINGS
from bucketd.common.errors import MongoError
from bucketd.server.parameters import PARAMETERS, Parameters
from support.server_process import ROOT


def test_the_table_is_in_order() -> None:
    assert list(PARAMETERS) == sorted(PARAMETERS)


@pytest.mark.parametrize("row", PARAMETERS.values(), ids=PARAMETERS)
def test_defaults_pass_their_own_checks(row: Any) -> None:
    if row.kind not in ("document", "array"):
        assert row.read(row.default) == row.default


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("logLevel", 1.9, 1),
        ("logLevel", True, 1),
        ("logLevel", Int64(3), 3),
        ("logLevel", Decimal128("2"), 2),
        ("quiet", "any text", True),
        ("quiet", 0.0, False),
        ("quiet", None, False),
        ("quiet", [], True),
        ("quiet", Decimal128("0"), False),
        ("automationServiceDescriptor", "x" * 64, "x" * 64),
        ("cursorTimeoutMillis", 5, Int64(5)),
        ("ttlIndexDeleteTargetDocs", 0, Int64(0)),
    ],
)
def test_values_that_are_taken(name: str, value: Any, kept: Any) -> None:
    parameters = Parameters()
    before = parameters.shown(name)
    assert parameters.set_at_runtime({name: value}) == before
    assert parameters.shown(name) == kept
    assert type(parameters.shown(name)) is type(kept)


@pytest.mark.parametrize(
    ("name", "value", "number"),
    [
        ("logLevel", -1, 2),
        ("logLevel", 6, 2),
        ("logLevel", 2**31, 2),
        ("logLevel", "1", 2),
        ("logLevel", float("nan"), 2),
        ("logLevel", [1], 2),
        ("ttlMonitorSleepSecs", 0, 2),
        ("cursorTimeoutMillis", 0, 2),
        ("scramIterationCount", 4999, 2),
        ("automationServiceDescriptor", 5, 14),
        ("automationServiceDescriptor", "x" * 65, 15),
        ("timeseriesBucketMaxCount", 5, 72),
        ("authSchemaVersion", 5, 72),
        ("nothing", 5, 72),
        ("LogLevel", 1, 72),
    ],
)
def test_values_that_are_refused(name: str, value: Any, number: int) -> None:
    parameters = Parameters()
    with pytest.raises(MongoError) as caught:
        parameters.set_at_runtime({"quiet": True, name: value})
    assert caught.value.number == number
    assert parameters["quiet"] is False, "nothing of a refused request is kept"


def test_nothing_to_set_is_refused() -> None:
    with pytest.raises(MongoError) as caught:
        Parameters().set_at_runtime({})
    assert caught.value.number == 72


@pytest.mark.parametrize(
    ("name", "text", "kept"),
    [
        ("timeseriesBucketMaxCount", "5", 5),
        ("ttlMonitorEnabled", "false", False),
        ("ttlMonitorEnabled", "1", True),
        ("logLevel", 2, 2),
        ("saslHostName", "somewhere", "somewhere"),
    ],
)
def test_values_from_the_command_line(name: str, text: Any, kept: Any) -> None:
    parameters = Parameters()
    parameters.at_startup(name, text)
    assert parameters[name] == kept


@pytest.mark.parametrize(
    ("name", "text"),
    [("nothing", "5"), ("ttlMonitorEnabled", "maybe"), ("logLevel", "x"), ("tlsMode", "disabled"), ("port", "5")],
)
def test_values_from_the_command_line_that_are_refused(name: str, text: str) -> None:
    with pytest.raises(MongoError):
        Parameters().at_startup(name, text)


def test_listeners_hear_of_changes() -> None:
    parameters = Parameters()
    heard: list[Any] = []
    parameters.on_change("ttlMonitorSleepSecs", heard.append)
    parameters.set_at_runtime({"ttlMonitorSleepSecs": 7})
    assert heard == [7]


def test_verbosity_of_components() -> None:
    parameters = Parameters()
    changes = {"verbosity": 1, "network": {"asio": {"verbosity": 3}}, "command": 2}
    parameters.set_at_runtime({"logComponentVerbosity": changes})
    shown = parameters["logComponentVerbosity"]
    assert shown["verbosity"] == parameters["logLevel"] == 1
    assert shown["network"] == shown["network"] | {"verbosity": -1, "asio": {"verbosity": 3}}
    assert shown["command"] == {"verbosity": 2}


@pytest.mark.parametrize("name", [*(f"--{row.metadata['flag']}" for row in SETTINGS.values()), *PARAMETERS])
def test_every_setting_and_parameter_is_in_the_manual(name: str) -> None:
    assert f"`{name}`" in (ROOT / "docs" / "configuration.md").read_text()
