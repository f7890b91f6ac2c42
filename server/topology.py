"""What clients watch: the version of the server's state, which changes once, when it begins to stop."""

import asyncio

from bson import Int64, ObjectId

from ..common.values import Document


class Topology:
    """The `topologyVersion` of hello, and a moment to wait for its next change."""

    def __init__(self) -> None:
        self.process_id = ObjectId()
        self.counter = 0
        self.stopping = False
        self._changed: asyncio.Future[None] | None = None

    @property
    def version(self) -> Document:
        """`topologyVersion` as clients are told it."""
        return {"processId": self.process_id, "counter": Int64(self.counter)}

    def change(self) -> asyncio.Future[None]:
        """Done with the next change."""
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        return self._changed

    def stop(self) -> None:
        """The server begins to stop: whoever waits is told."""
        self.stopping = True
        self.counter += 1
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)
