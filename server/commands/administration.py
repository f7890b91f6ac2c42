"""What an operator does to a running server: flush and lock, stop, close connections, move its clock."""

import asyncio
import re
from typing import Final

from bson import Int64

from ...common.config import ConfigError
from ...common.errors import (
    FailedToParse,
    IllegalOperation,
    InvalidSSLConfiguration,
    Location,
    LockTimeout,
)
from ...common.limits import FEATURE_COMPATIBILITY_VERSION
from ...common.values import Document, encode, is_string, type_name
from ...storage.engine import Engine, Transaction
from ..context import Context, Request
from ..services import VERSION_KEY
from ..system_collections import put_version
from .arguments import Fields
from .base import Command

_LOCK_SECONDS: Final = 90.0
"""So long the lock of fsync waits for what is being written, unless the command says."""
_PORT_MAX: Final = 65535
_VERSIONS: Final = ("8.0", FEATURE_COMPATIBILITY_VERSION)
_HOST_AND_PORT: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]]+)(?::(\d+))?")


class Fsync(Command):
    """`fsync`: everything that was answered is on disk already; with `lock`, writes wait until `fsyncUnlock`."""

    name = "fsync"
    summary = "Flushes to disk, and locks against writes if asked to."
    admin_only = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{numFiles}`, or with `lock` how often the server is locked."""
        fields = Fields(request, known=("lock", "fsyncLockAcquisitionTimeoutMillis"))
        lock = fields.take_bool("lock")
        timeout = fields.take_any("fsyncLockAcquisitionTimeoutMillis")
        if timeout is not None and type_name(timeout) != "int":
            raise fields.wrong_type("fsyncLockAcquisitionTimeoutMillis", timeout, "type 'int'")
        if not lock:
            return {"numFiles": 1}
        seconds = timeout / 1000 if timeout is not None and timeout > 0 else _LOCK_SECONDS
        try:
            async with asyncio.timeout(seconds):
                count = await context.services.write_gate.lock(context.services.engine)
        except TimeoutError:
            raise LockTimeout("Fsync lock timed out") from None
        return {
            "info": "now locked against writes, use db.fsyncUnlock() to unlock",
            "lockCount": Int64(count),
            "seeAlso": "https://dochub.mongodb.org/core/fsynccommand",
        }


class FsyncUnlock(Command):
    """`fsyncUnlock`: takes one lock away."""

    name = "fsyncUnlock"
    summary = "Unlocks what fsync locked."
    admin_only = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer how many locks are left."""
        gate = context.services.write_gate
        if not gate.closed:
            raise IllegalOperation("fsyncUnlock called when not locked")
        return {"info": "fsyncUnlock completed", "lockCount": Int64(gate.unlock())}


class Shutdown(Command):
    """`shutdown`: stop in good order. The connection closes without a reply."""

    name = "shutdown"
    summary = "Stops the server."
    admin_only = True

    async def run(self, context: Context, request: Request) -> Document:
        """Stop."""
        fields = Fields(request, known=("force", "timeoutSecs"))
        fields.take_bool("force")
        fields.take_whole_number("timeoutSecs", default=0)
        context.services.request_shutdown()
        context.client.abort()
        return {}


class DropConnections(Command):
    """`dropConnections`: closes outgoing connections to these servers, of which there are none."""

    name = "dropConnections"
    summary = "Closes outgoing connections."
    admin_only = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{}`."""
        fields = Fields(request, known=("hostAndPort",))
        for position, host in enumerate(fields.take_list("hostAndPort")):
            if host is None:
                continue
            if not is_string(host):
                raise fields.wrong_type(f"hostAndPort.{position}", host, "type 'string'")
            _check_host_and_port(host)
        return {}


class SetFeatureCompatibilityVersion(Command):
    """`setFeatureCompatibilityVersion`: keeps the version and tells it; the format of the data is the same for each."""

    name = "setFeatureCompatibilityVersion"
    summary = "Sets the version that the data is compatible with."
    admin_only = True
    writes = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{}`."""
        fields = Fields(request, known=("confirm", "fromConfigServer", "downgradeOnDiskChanges"))
        version = fields.take_string(self.name)
        confirm = fields.take_bool("confirm")
        if version not in _VERSIONS:
            raise Location(
                4926900,
                f"Invalid feature compatibility version value '{version}'. Expected '{FEATURE_COMPATIBILITY_VERSION}'.",
            )
        if not confirm:
            raise Location(
                7369100,
                "Once you have changed the FCV you may not be able to change it back. Re-run this command with the "
                "parameter 'confirm: true' to go on.",
            )
        services = context.services
        engine: Engine = services.engine
        stored = encode({"version": version})

        def work(transaction: Transaction) -> None:
            transaction.put("meta", VERSION_KEY, stored)
            put_version(services.catalog, transaction, version)

        await engine.write(work)
        services.parameters.fill("featureCompatibilityVersion", {"version": version})
        return {}


class RotateCertificates(Command):
    """`rotateCertificates`: reads the certificates again, for the connections that begin from now on."""

    name = "rotateCertificates"
    summary = "Reads certificates again."
    admin_only = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{}`; 140 where the files cannot be used, and those of before stay."""
        fields = Fields(request, known=("message",))
        message = fields.take_string("message", default=None)
        services = context.services
        if services.tls is None:
            return {}
        # TLS is loaded where it is spoken.
        from ..tls import reload_certificates

        if message is not None:
            services.logger.info("Rotating certificates", component="NETWORK", message=message)
        try:
            reload_certificates(services)
        except ConfigError as error:
            raise InvalidSSLConfiguration(str(error)) from error
        return {}


def _check_host_and_port(text: str) -> None:
    found = _HOST_AND_PORT.fullmatch(text)
    if found is None:
        raise FailedToParse(f"Bad HostAndPort: '{text}'")
    port = found.group(2)
    if port is not None and not 0 < int(port) <= _PORT_MAX:
        raise FailedToParse(f"Port number {port} out of range parsing HostAndPort from '{text}'")
