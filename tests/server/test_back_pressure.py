"""What all connections together may hold: beyond it reading stops, and goes on when there is room again."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from support.server_process import ServerProcess
from support.wire_client import WireClient

LARGE = "x" * 12_000_000


def test_large_requests_wait_their_turn_and_are_all_answered(start_server: Callable[..., ServerProcess]) -> None:
    # Room for four of them; sixteen come, four at a time from each of four clients.
    own = start_server("--maxInFlightBytes", "48000000")

    def talk(_: int) -> int:
        with WireClient(own.port) as wire:
            for number in range(4):
                wire.tell({"ping": 1, "comment": LARGE}, flags=0, request_id=number + 1)
            return sum(wire.receive().document["ok"] == 1.0 for _ in range(4))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(talk, range(4))) == [4, 4, 4, 4]
    assert own.errors() == []


def test_many_connections_are_served(start_server: Callable[..., ServerProcess]) -> None:
    own = start_server("--quiet")
    connected = [WireClient(own.port) for _ in range(300)]
    try:
        assert all(wire.ask({"ping": 1})["ok"] == 1.0 for wire in connected)
        assert connected[0].ask({"serverStatus": 1})["connections"]["current"] == 300
    finally:
        for wire in connected:
            wire.close()
    assert own.stop() == 0
