"""Log lines have mongod's shape, and the latest are kept."""

import json

from bucketd.common.clock import TestClock
from bucketd.common.logs import LogMemory, open_logger


def test_a_line_has_the_shape_of_mongod(clock: TestClock) -> None:
    lines: list[str] = []
    logger = open_logger(lines.append, clock, LogMemory())
    logger.info("Waiting for connections", component="NETWORK", id=23016, ctx="listener", port=5)
    assert json.loads(lines[0]) == {
        "t": {"$date": "2023-11-14T22:13:20.000Z"},
        "s": "I",
        "c": "NETWORK",
        "id": 23016,
        "ctx": "listener",
        "msg": "Waiting for connections",
        "attr": {"port": 5},
    }


def test_a_failure_is_told_whole(clock: TestClock) -> None:
    lines: list[str] = []
    logger = open_logger(lines.append, clock, LogMemory())
    try:
        raise KeyError("missing")
    except KeyError as error:
        logger.error("It failed", exc_info=error)
    line = json.loads(lines[0])
    assert line["s"] == "E"
    assert line["attr"]["error"] == "KeyError: 'missing'"
    assert "test_logs.py" in line["attr"]["traceback"]


def test_verbosity_decides_on_debug_lines(clock: TestClock) -> None:
    lines: list[str] = []
    memory = LogMemory()
    logger = open_logger(lines.append, clock, memory)
    logger.debug("hidden")
    memory.verbosity = 1
    logger.debug("shown")
    assert [json.loads(line)["msg"] for line in lines] == ["shown"]


def test_the_latest_lines_are_kept(clock: TestClock) -> None:
    memory = LogMemory()
    logger = open_logger(lambda line: None, clock, memory)
    logger.warning("beware")
    memory.starting = False
    for number in range(2000):
        logger.warning("line", number=number)
    assert len(memory.lines) == 1024
    assert memory.lines_written == 2001
    assert json.loads(memory.lines[-1])["attr"] == {"number": 1999}
    assert [json.loads(line)["msg"] for line in memory.startup_warnings] == ["beware"]
