"""`compact` and `autoCompact`: give space back that deleted data left behind.

The store fills the pages that deletes set free with what is written next, and its file does not shrink: what can be
done is to remove at once what dropped collections and indexes left, and to pack the buckets of a time-series collection, which
otherwise happens in the background.
"""

from typing import Final

from ...catalog.catalog import Catalog
from ...catalog.namespaces import Namespace
from ...common.errors import (
    BadValue,
    CommandNotSupportedOnView,
    IDLFailedToParse,
    InvalidNamespace,
    NamespaceNotFound,
    ObjectIsBusy,
)
from ...common.values import Document, is_string, type_name
from ..context import Context, Request
from .arguments import Fields
from .base import Command

_MEGABYTES_MAX: Final = (2**63 - 1) >> 20
_STATE: Final = "autoCompact"


class Compact(Command):
    """`compact`."""

    name = "compact"
    summary = "Removes what deleted data left behind, and packs buckets."

    async def run(self, context: Context, request: Request) -> Document:
        """Answer by how many bytes the file of the store became smaller."""
        fields = Fields(request, known=("dryRun", "force", "freeSpaceTargetMB"))
        name = request.value
        if not is_string(name):
            raise InvalidNamespace(f"collection name has invalid type {type_name(name)}")
        if name == "" or name.startswith(".") or "\0" in name:
            raise InvalidNamespace(f"Invalid namespace specified '{request.database}.{name}'")
        dry_run = fields.take_bool("dryRun", exact=True)
        fields.take_bool("force", exact=True)
        fields.take_whole_number("freeSpaceTargetMB", default=None, low=1)
        catalog: Catalog = context.services.catalog
        namespace = Namespace(request.database, name)
        collection = catalog.get(namespace)
        if collection is None:
            raise NamespaceNotFound(f"collection {namespace} does not exist")
        if collection.kind == "view":
            raise CommandNotSupportedOnView("can't compact a view")
        if dry_run:
            return {"estimatedBytesFreed": 0}
        before = context.services.engine.size_bytes()
        await catalog.swept()
        buckets = catalog.get(namespace.buckets) if collection.kind == "timeseries" else collection
        if buckets is not None and buckets.packed:
            await context.services.extra["packer"].pack(buckets, everything=True)
        return {"bytesFreed": max(before - context.services.engine.size_bytes(), 0)}


class AutoCompact(Command):
    """`autoCompact`: the same for everything, in the background."""

    name = "autoCompact"
    summary = "Starts or stops compacting in the background."
    admin_only = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{}`."""
        fields = Fields(request, known=("freeSpaceTargetMB", "runOnce"))
        if request.value is None:
            raise IDLFailedToParse("BSON field 'autoCompact.autoCompact' is missing but a required field")
        enable = fields.take_bool(self.name, exact=True)
        target = fields.take_whole_number("freeSpaceTargetMB", default=None, low=1)
        once = fields.take_bool("runOnce", exact=True)
        held = context.services.extra
        if not enable:
            held.pop(_STATE, None)
            return {}
        if target is not None and target > _MEGABYTES_MAX:
            raise BadValue(f"freeSpaceTargetMB is too large: {target}")
        asked = (target, once)
        if held.get(_STATE, asked) != asked:
            raise ObjectIsBusy("cannot reconfigure a running background compaction")
        if not once:
            held[_STATE] = asked
        catalog: Catalog = context.services.catalog
        catalog.sweep()
        return {}
