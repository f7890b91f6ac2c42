"""Fail points: failures that a test asks for. They are there only with `enableTestCommands`.

`failCommand` is the one that there is: it makes commands fail, wait, lose their connection, or tell of a write concern
that was not fulfilled.
"""

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any, Final

from ..common.errors import BadValue, FailedToParse, NetworkTimeout, TypeMismatch, error_for
from ..common.values import Document, type_name
from .context import Client
from .operations import Operation

FAIL_COMMAND: Final = "failCommand"
_NEVER: Final = frozenset({"configureFailPoint"})


@dataclass(slots=True)
class FailPoint:
    """One fail point that is on."""

    data: Document
    always: bool = False
    times: int = 0
    """How often it is still to act, where not always."""
    skip: int = 0
    """How often it is passed by before it acts."""
    probability: float | None = None

    def acts(self) -> bool:
        """Whether it acts this time, which counts."""
        if self.skip > 0:
            self.skip -= 1
            return False
        if self.probability is not None:
            return random.random() < self.probability
        if self.always:
            return True
        self.times -= 1
        return self.times >= 0

    @property
    def spent(self) -> bool:
        """Whether it never acts again."""
        return not self.always and self.probability is None and self.times <= 0


@dataclass(slots=True)
class FailPoints:
    """The fail points of a server."""

    active: dict[str, FailPoint] = field(default_factory=dict)
    _entered: dict[str, int] = field(default_factory=dict)

    def configure(self, name: str, mode: Any, data: Document) -> int:
        """Set a fail point; returns how often it has acted until now.

        Raises:
            MongoError: no such mode.
        """
        point = _point(mode, data)
        count = self._entered.get(name, 0)
        if point is None:
            self.active.pop(name, None)
        else:
            _check(data)
            self.active[name] = point
        return count

    async def before(self, command: str, namespace: str, client: Client, operation: Operation) -> Document | None:
        """Do to a command what is asked for; returns the writeConcernError that its reply has to tell.

        Raises:
            MongoError: the command fails.
        """
        point = self.active.get(FAIL_COMMAND)
        if point is None or command in _NEVER or not _is_meant(point.data, command, namespace, client):
            return None
        acts = point.acts()
        if point.spent:
            self.active.pop(FAIL_COMMAND, None)
        if not acts:
            return None
        self._entered[FAIL_COMMAND] = self._entered.get(FAIL_COMMAND, 0) + 1
        data = point.data
        if data.get("blockConnection"):
            never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            await operation.wait(never, int(data.get("blockTimeMS", 0)) / 1000)
        if data.get("closeConnection"):
            client.abort()
            raise NetworkTimeout("the connection is closed by a fail point")
        if "errorCode" in data:
            error = error_for(int(data["errorCode"]), "Failing command via 'failCommand' failpoint")
            error.labels = tuple(data.get("errorLabels", ()))
            error.extra.update(data.get("errorExtraInfo") or {})
            raise error
        concern = data.get("writeConcernError")
        if concern is None:
            return None
        told: Document = {"writeConcernError": concern}
        labels = data.get("errorLabels")
        return told if labels is None else {**told, "errorLabels": labels}


def _point(mode: Any, data: Document) -> FailPoint | None:
    if mode == "off":
        return None
    if mode == "alwaysOn":
        return FailPoint(data, always=True)
    if isinstance(mode, str):
        raise BadValue(f"unknown mode: {mode}")
    if not isinstance(mode, dict):
        raise TypeMismatch(f"'mode' must be a string or JSON object, found {type_name(mode)}")
    for name in ("times", "skip"):
        if name in mode:
            count = mode[name]
            if isinstance(count, bool) or not isinstance(count, int | float):
                raise TypeMismatch(f"'mode.{name}' must be a number, found {type_name(count)}")
            if count < 0:
                raise BadValue(f"'mode.{name}' must not be negative")
            whole = int(count)
            return FailPoint(data, times=whole) if name == "times" else FailPoint(data, always=True, skip=whole)
    if "activationProbability" in mode:
        share = mode["activationProbability"]
        if isinstance(share, bool) or not isinstance(share, int | float):
            raise TypeMismatch(f"'mode.activationProbability' must be a double, found {type_name(share)}")
        if not 0.0 <= share <= 1.0:
            raise BadValue(f"activationProbability must be between 0.0 and 1.0; found {share}")
        return FailPoint(data, probability=float(share))
    raise BadValue("'mode' must be one of 'off', 'alwaysOn', 'times', 'skip' and 'activationProbability'")


_DATA: Final = frozenset(
    {
        "appName", "blockConnection", "blockTimeMS", "closeConnection", "errorCode", "errorExtraInfo", "errorLabels",
        "failCommands", "failInternalCommands", "namespace", "writeConcernError",
    }
)  # fmt: skip


def _check(data: Document) -> None:
    for name in data:
        if name not in _DATA:
            raise FailedToParse(f"'{name}' is not supported in the data of {FAIL_COMMAND}")
    if data.get("blockConnection") and not isinstance(data.get("blockTimeMS"), int | float):
        raise FailedToParse("'blockTimeMS' must be specified with 'blockConnection'")


def _is_meant(data: Document, command: str, namespace: str, client: Client) -> bool:
    if "appName" in data and data["appName"] != client.app_name:
        return False
    if "namespace" in data and data["namespace"] != namespace:
        return False
    return command in data.get("failCommands", ())
