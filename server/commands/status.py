"""serverStatus: every number that the server keeps of itself, section by section."""

import os
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

from bson import DatetimeMS, Decimal128, Int64

from ...common.limits import SERVER_VERSION
from ...common.values import Document
from ..context import Context, Request, Services
from ..machine import host_name, page_faults, processor_seconds, resident_and_virtual_mib
from ..version import package_version
from .base import Command
from .limits_status import establishment, limits, queues
from .security_status import ingress, security, transport_security

Section = Callable[[Services], Document]


class ServerStatus(Command):
    """`serverStatus`: who this is, and the sections; each can be left out or asked for by its name."""

    name = "serverStatus"
    summary = "Numbers that the server keeps of itself."

    async def run(self, context: Context, request: Request) -> Document:
        """Answer the sections."""
        services = context.services
        body = request.body
        up_ms = int((services.clock.monotonic() - services.started) * 1000)
        answer: Document = {
            "host": f"{host_name()}:{services.parameters['port']}",
            "version": SERVER_VERSION,
            "process": "mongod",
            "pid": Int64(os.getpid()),
            "uptime": up_ms / 1000,
            "uptimeMillis": Int64(up_ms),
            "uptimeEstimate": Int64(up_ms // 1000),
            "localTime": DatetimeMS(services.clock.now_ms()),
            "bucketd": {"version": package_version(), "limits": limits(services)},
        }
        sections: dict[str, Callable[[], Document]] = {
            name: partial(section, services) for name, section in SECTIONS.items()
        }
        sections.update(services.status_sections)
        for name, section in sorted(sections.items(), key=lambda row: row[0].lower()):
            if _wanted(body, name, by_default=name not in _ON_DEMAND):
                answer[name] = section()
        return answer


def _wanted(body: Document, name: str, *, by_default: bool) -> bool:
    if name not in body:
        return by_default
    value = body[name]
    if isinstance(value, Decimal128):
        return bool(value.to_decimal() != 0)
    return bool(value) if value is None or isinstance(value, bool | int | float) else True


def _asserts(services: Services) -> Document:
    counters = services.counters
    return {
        "regular": counters.asserts_regular,
        "warning": counters.asserts_warning,
        "msg": counters.asserts_message,
        "user": counters.asserts_user,
        "tripwire": 0,
        "rollovers": 0,
    }


def _catalog_stats(services: Services) -> Document:
    collections = capped = views = timeseries = internal = 0
    for collection in services.catalog.all_collections() if services.catalog is not None else ():
        namespace = collection.namespace
        if namespace.database in ("admin", "config", "local") or namespace.is_system:
            internal += collection.kind == "collection"
            continue
        collections += collection.kind == "collection"
        capped += collection.capped
        views += collection.kind == "view"
        timeseries += collection.kind == "timeseries"
    return {
        "collections": collections,
        "capped": capped,
        "clustered": 0,
        "timeseries": timeseries,
        "views": views,
        "internalCollections": internal,
        "internalViews": 0,
        "csfle": 0,
        "queryableEncryption": 0,
        "systemProfile": 0,
    }


def _connections(services: Services) -> Document:
    counters = services.counters
    return {
        "current": counters.connections_current,
        "available": services.connections_max - counters.connections_current,
        "totalCreated": Int64(counters.connections_created),
        "rejected": Int64(counters.connections_rejected),
        "active": sum(client.operation is not None for client in services.clients.values()),
        "threaded": counters.connections_current,
        "exhaustIsMaster": Int64(0),
        "exhaustHello": Int64(counters.exhaust_hello),
        "awaitingTopologyChanges": Int64(counters.awaiting_topology_change),
        "loadBalanced": Int64(0),
        **establishment(services),
    }


def _extra_info(services: Services) -> Document:
    user, system = processor_seconds()
    return {
        "note": "fields vary by platform",
        "user_time_us": Int64(int(user * 1_000_000)),
        "system_time_us": Int64(int(system * 1_000_000)),
        "page_faults": page_faults(),
    }


def _global_lock(services: Services) -> Document:
    running = [operation for operation in services.operations if not operation.waited]
    writers = sum(operation.writes for operation in running)
    waiting = sum(operation.waited and operation.writes for operation in services.operations)
    up_us = int((services.clock.monotonic() - services.started) * 1_000_000)
    return {
        "totalTime": Int64(up_us),
        "currentQueue": {"total": waiting, "readers": 0, "writers": waiting},
        "activeClients": {"total": len(running), "readers": len(running) - writers, "writers": writers},
    }


def _session_cache(services: Services) -> Document:
    return {"activeSessionsCount": len(services.sessions), "sessionsCollectionJobCount": 0}


def _memory(services: Services) -> Document:
    resident, virtual = resident_and_virtual_mib()
    return {"bits": 64, "resident": resident, "virtual": virtual, "supported": True}


def _metrics(services: Services) -> Document:
    counters = services.counters
    cursors = services.cursors
    metrics: Document = {
        "commands": {
            "<UNKNOWN>": Int64(counters.commands_unknown),
            **{
                name: {"failed": Int64(counters.commands_failed[name]), "total": Int64(total)}
                for name, total in sorted(counters.commands_run.items())
            },
        },
        "cursor": {
            "moreThanOneBatch": Int64(cursors.counters.more_than_one_batch),
            "timedOut": Int64(cursors.counters.timed_out),
            "totalOpened": Int64(cursors.counters.opened),
            "open": {
                "noTimeout": Int64(sum(cursor.no_timeout for cursor in cursors)),
                "pinned": Int64(sum(cursor.pinned for cursor in cursors)),
                "total": Int64(len(cursors)),
            },
        },
        "document": {
            "deleted": Int64(counters.documents_deleted),
            "inserted": Int64(counters.documents_inserted),
            "returned": Int64(counters.documents_returned),
            "updated": Int64(counters.documents_updated),
        },
        "network": ingress(services),
        "queryExecutor": {
            "scanned": Int64(counters.keys_scanned),
            "scannedObjects": Int64(counters.documents_scanned),
        },
    }
    for name, section in services.metric_sections.items():
        metrics[name] = section()
    return metrics


def _network(services: Services) -> Document:
    counters = services.counters
    return {
        "bytesIn": Int64(counters.bytes_in),
        "bytesOut": Int64(counters.bytes_out),
        "physicalBytesIn": Int64(counters.physical_bytes_in),
        "physicalBytesOut": Int64(counters.physical_bytes_out),
        "numRequests": Int64(counters.requests),
        "ingressRequestRateLimiter": services.admission.rate.statistics(queues=False),
        "compression": {
            name: {
                "compressor": {"bytesIn": Int64(row.compressor_in), "bytesOut": Int64(row.compressor_out)},
                "decompressor": {"bytesIn": Int64(row.decompressor_in), "bytesOut": Int64(row.decompressor_out)},
            }
            for name, row in counters.compression.items()
        },
    }


def _opcounters(services: Services) -> Document:
    counters = services.counters
    return {
        "insert": Int64(counters.insert),
        "query": Int64(counters.query),
        "update": Int64(counters.update),
        "delete": Int64(counters.delete),
        "getmore": Int64(counters.getmore),
        "command": Int64(counters.command),
    }


def _opcounters_repl(services: Services) -> Document:
    return {name: Int64(0) for name in ("insert", "query", "update", "delete", "getmore", "command")}


def _storage_engine(services: Services) -> Document:
    size = services.engine.size_bytes() if services.engine is not None else 0
    return {
        "name": "lmdb",
        "supportsCommittedReads": False,
        "persistent": True,
        "readOnly": False,
        "sizeBytes": Int64(size),
    }


def _transactions(services: Services) -> Document:
    names = (
        "retriedCommandsCount",
        "retriedStatementsCount",
        "transactionsCollectionWriteCount",
        "currentActive",
        "currentInactive",
        "currentOpen",
        "totalAborted",
        "totalCommitted",
        "totalStarted",
        "totalPrepared",
        "currentPrepared",
    )
    return {name: Int64(0) for name in names}


def _nothing(services: Services) -> Document:
    return {}


SECTIONS: Final[Mapping[str, Section]] = MappingProxyType(
    {
        "asserts": _asserts,
        "catalogStats": _catalog_stats,
        "connections": _connections,
        "extra_info": _extra_info,
        "globalLock": _global_lock,
        "locks": _nothing,
        "logicalSessionRecordCache": _session_cache,
        "mem": _memory,
        "metrics": _metrics,
        "mirroredReads": _nothing,
        "network": _network,
        "opcounters": _opcounters,
        "opcountersRepl": _opcounters_repl,
        "queues": queues,
        "security": security,
        "storageEngine": _storage_engine,
        "transactions": _transactions,
        "transportSecurity": transport_security,
    }
)
"""The sections of this file; others come from `services.status_sections`."""

_ON_DEMAND: Final = frozenset({"mirroredReads"})
