"""What this server is, where it runs, what it was told and what it logged."""

import os
import platform
import ssl
import struct
import sys
from typing import Final

from bson import DatetimeMS, Int64

from ...common.errors import NoSuchKey, OperationFailed, TypeMismatch
from ...common.limits import DOCUMENT_BYTES_MAX, SERVER_VERSION, SERVER_VERSION_ARRAY
from ...common.values import Document, is_string, type_name
from ..context import Context, Request
from ..machine import (
    host_name,
    memory_limit_mib,
    memory_mib,
    operating_system,
    page_size,
    processors,
)
from ..version import package_version
from .arguments import Fields
from .base import Command

_PASSWORD: Final = "--tlsCertificateKeyFilePassword"
_BITS: Final = struct.calcsize("P") * 8


class BuildInfo(Command):
    """`buildInfo`: the version of MongoDB that this server answers as, and, in `bucketd`, what it is."""

    name = "buildInfo"
    aliases = ("buildinfo",)
    summary = "What this server is and how it was built."
    needs_login = False

    async def run(self, context: Context, request: Request) -> Document:
        """Answer the build."""
        Fields(request, known=())
        return {
            "version": SERVER_VERSION,
            "gitVersion": "bucketd",
            "modules": [],
            "allocator": "system",
            "javascriptEngine": "none",
            "sysInfo": "deprecated",
            "versionArray": list(SERVER_VERSION_ARRAY),
            "bucketd": {"version": package_version(), "python": platform.python_version()},
            "openssl": {"running": ssl.OPENSSL_VERSION, "compiled": ssl.OPENSSL_VERSION},
            "buildEnvironment": {
                "distmod": "",
                "distarch": platform.machine(),
                "cc": platform.python_compiler(),
                "ccflags": "",
                "cxx": "",
                "cxxflags": "",
                "linkflags": "",
                "target_arch": platform.machine(),
                "target_os": sys.platform,
                "cppdefines": "",
            },
            "bits": _BITS,
            "debug": False,
            "maxBsonObjectSize": DOCUMENT_BYTES_MAX,
            "storageEngines": ["lmdb"],
        }


class HostInfo(Command):
    """`hostInfo`: the machine."""

    name = "hostInfo"
    summary = "The machine that the server runs on."

    async def run(self, context: Context, request: Request) -> Document:
        """Answer system, operating system and further facts."""
        Fields(request, known=())
        chips = processors()
        kind, name, version = operating_system()
        usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else chips.logical
        return {
            "system": {
                "currentTime": DatetimeMS(context.services.clock.now_ms()),
                "hostname": host_name(),
                "cpuAddrSize": _BITS,
                "memSizeMB": Int64(memory_mib()),
                "memLimitMB": Int64(memory_limit_mib()),
                "numCores": chips.logical,
                "numCoresAvailableToProcess": usable,
                "numPhysicalCores": chips.physical,
                "numCpuSockets": chips.sockets,
                "cpuArch": platform.machine(),
                "numaEnabled": False,
                "numNumaNodes": 1,
            },
            "os": {"type": kind, "name": name, "version": version},
            "extra": {
                "versionString": platform.version(),
                "libcVersion": " ".join(platform.libc_ver()).strip(),
                "kernelVersion": platform.release(),
                "cpuString": chips.model,
                "cpuFrequencyMHz": chips.megahertz,
                "pageSize": Int64(page_size()),
                "numPages": memory_mib() * (1024 * 1024 // page_size()),
                "maxOpenFiles": os.sysconf("SC_OPEN_MAX"),
            },
        }


class GetCmdLineOpts(Command):
    """`getCmdLineOpts`: how the server was started."""

    name = "getCmdLineOpts"
    summary = "Arguments and settings that the server was started with."
    admin_only = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{argv, parsed}`."""
        Fields(request, known=())
        return {"argv": ["bucketd", *without_secrets(sys.argv[1:])], "parsed": context.services.config.parsed()}


def without_secrets(arguments: list[str]) -> list[str]:
    """Arguments of a command line with what follows an option of a password hidden."""
    shown: list[str] = []
    hide = False
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        shown.append("<password>" if hide else f"{name}=<password>" if equals and name == _PASSWORD else argument)
        hide = argument == _PASSWORD
    return shown


class ListCommands(Command):
    """`listCommands`: the table of commands."""

    name = "listCommands"
    summary = "Every command that the server knows."
    needs_login = False

    async def run(self, context: Context, request: Request) -> Document:
        """Answer one row a command."""
        commands: dict[str, Command] = {command.name: command for command in context.services.commands.values()}
        return {
            "commands": {
                name: {
                    "help": command.summary,
                    "requiresAuth": command.needs_login,
                    "secondaryOk": not command.writes,
                    "adminOnly": command.admin_only,
                    "apiVersions": ["1"] if command.in_api_version_1 else [],
                    "deprecatedApiVersions": [],
                }
                for name, command in sorted(commands.items())
            }
        }


class Features(Command):
    """`features`: what the driver of an ancient shell wanted to know."""

    name = "features"
    summary = "Features of this build."
    needs_login = False

    async def run(self, context: Context, request: Request) -> Document:
        """Answer that there is no JavaScript."""
        return {"js": {"utf8": True}}


class GetLog(Command):
    """`getLog`: the latest lines of the log."""

    name = "getLog"
    summary = "The latest lines of the log."
    admin_only = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer the lines of a log, or, for `*`, the names of the logs."""
        fields = Fields(request)
        name = fields.take_string("getLog")
        fields.finish()
        memory = context.services.log_memory
        match name:
            case "*":
                return {"names": ["global", "startupWarnings"]}
            case "global":
                return {"totalLinesWritten": memory.lines_written, "log": list(memory.lines)}
            case "startupWarnings":
                return {"totalLinesWritten": len(memory.startup_warnings), "log": list(memory.startup_warnings)}
            case _:
                raise OperationFailed(f"No log named '{name}'")


class LogRotate(Command):
    """`logRotate`: go on in a new file of the same name."""

    name = "logRotate"
    summary = "Starts a new file of the log."
    admin_only = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{}`."""
        fields = Fields(request)
        value = fields.take_any("logRotate")
        fields.finish()
        if is_string(value):
            if value != "server":
                raise NoSuchKey(f"Unknown log type '{value}' for logRotate")
        elif type_name(value) not in ("bool", "int", "long", "double", "decimal"):
            raise TypeMismatch(
                f"BSON field 'logRotate.logRotate' is the wrong type '{type_name(value)}', expected types "
                "'[bool, int, long, double, decimal, string]'"
            )
        context.services.rotate_log()
        return {}


class ConnPoolStats(Command):
    """`connPoolStats`: connections to other servers, of which there are none."""

    name = "connPoolStats"
    summary = "Outgoing connections."

    async def run(self, context: Context, request: Request) -> Document:
        """Answer that there are none."""
        return {
            "numClientConnections": 0,
            "numAScopedConnections": 0,
            "totalInUse": 0,
            "totalAvailable": 0,
            "totalLeased": 0,
            "totalCreated": 0,
            "totalRefreshing": 0,
            "totalRefreshed": 0,
            "pools": {},
            "hosts": {},
        }


class LockInfo(Command):
    """`lockInfo`: the locks that are held."""

    name = "lockInfo"
    summary = "Locks that are held or waited for."
    admin_only = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer the lock of fsync, the only one that outlives a request."""
        Fields(request, known=())
        gate = context.services.write_gate
        if not gate.closed:
            return {"lockInfo": []}
        holder = {"mode": "S", "convertMode": "NONE", "enqueueAtFront": False, "compatibleFirst": False}
        return {
            "lockInfo": [
                {"resourceId": "{2305843009213693953: Global, 1}", "granted": [holder], "pending": []},
            ]
        }
