"""Settings: where they come from, which place wins, and what is refused."""

from typing import Any

import pytest

from bucketd.common.config import SETTINGS, Config, ConfigError, config_from


def test_defaults_are_those_of_the_table() -> None:
    config = config_from({}, {}, {})
    assert config == Config()
    assert (config.port, config.bind_ip, config.auth, config.test_clock) == (27017, ("localhost",), False, False)
    assert config.parsed() == {}


def test_yaml_has_the_names_of_mongod() -> None:
    document = {
        "net": {"port": 5000, "bindIp": "127.0.0.1,::1", "compression": {"compressors": "zlib"}},
        "storage": {"dbPath": "/somewhere", "engine": "wiredTiger", "wiredTiger": {"engineConfig": {"cacheSizeGB": 1}}},
        "systemLog": {"path": "/log", "quiet": True, "destination": "file", "logAppend": True},
        "security": {"authorization": "enabled"},
        "setParameter": {"ttlMonitorEnabled": False, "logLevel": 2},
    }
    config = config_from(document, {}, {})
    assert config.port == 5000
    assert config.bind_ip == ("127.0.0.1", "::1")
    assert config.compressors == ("zlib",)
    assert (config.dbpath, config.logpath, config.quiet, config.logappend) == ("/somewhere", "/log", True, True)
    assert config.auth
    assert config.set_parameters == (("ttlMonitorEnabled", False), ("logLevel", 2))


def test_later_places_win() -> None:
    document = {"net": {"port": 1}, "storage": {"dbPath": "file"}, "systemLog": {"path": "file"}}
    environment = {"BUCKETD_PORT": "2", "BUCKETD_DBPATH": "environment", "PORT": "9", "BUCKETD_LOGPATH": ""}
    config = config_from(document, environment, {"port": "3", "dbpath": None})
    assert (config.port, config.dbpath, config.logpath) == (3, "environment", "file")


def test_parameters_of_all_places_add_up() -> None:
    config = config_from({"setParameter": {"a": 1}}, {}, {"set_parameters": ("b=2", "c=x=y")})
    assert config.set_parameters == (("a", 1), ("b", "2"), ("c", "x=y"))


@pytest.mark.parametrize(
    ("document", "environment", "flags"),
    [
        pytest.param({"net": {"prot": 5}}, {}, {}, id="unknown name"),
        pytest.param({"replication": {"replSetName": "rs0"}}, {}, {}, id="a setting that is not built"),
        pytest.param({"net": {"port": "x"}}, {}, {}, id="port is no number"),
        pytest.param({"net": {"port": True}}, {}, {}, id="port is a truth"),
        pytest.param({}, {"BUCKETD_PORT": "65536"}, {}, id="port is too large"),
        pytest.param({}, {}, {"port": "-1"}, id="port is negative"),
        pytest.param({}, {"BUCKETD_QUIET": "perhaps"}, {}, id="neither true nor false"),
        pytest.param({}, {}, {"compressors": "zlib,lzma"}, id="unknown compressor"),
        pytest.param({}, {}, {"set_parameters": ("novalue",)}, id="parameter without a value"),
        pytest.param({}, {}, {"max_connections": "0"}, id="no connections at all"),
    ],
)
def test_what_cannot_be_is_refused(
    document: dict[str, Any], environment: dict[str, str], flags: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError):
        config_from(document, environment, flags)


def test_compression_can_be_switched_off() -> None:
    assert config_from({}, {}, {"compressors": "disabled"}).compressors == ()


def test_parsed_shows_what_differs_as_yaml_nests_it() -> None:
    config = Config(port=5, auth=True, bind_ip=("a", "b"), set_parameters=(("logLevel", 1),))
    assert config.parsed() == {
        "net": {"port": 5, "bindIp": "a,b"},
        "security": {"authorization": "enabled"},
        "setParameter": {"logLevel": 1},
    }


@pytest.mark.parametrize("name", SETTINGS)
def test_every_row_is_complete(name: str) -> None:
    meta = SETTINGS[name].metadata
    assert meta["summary"].endswith(".")
    assert meta["flag"]
    assert meta["yaml"]


@pytest.mark.parametrize("key", ["flag", "yaml"])
def test_names_stand_once(key: str) -> None:
    names = [row.metadata[key] for row in SETTINGS.values()]
    assert sorted(names) == sorted(set(names))
