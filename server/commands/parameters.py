"""getParameter and setParameter."""

from typing import Final

from ...common.errors import BadValue, IllegalOperation, InvalidOptions
from ...common.values import Document
from ..context import Context, Request
from ..generic_arguments import GENERIC_FIELDS
from ..parameters import PARAMETERS, Parameter
from .arguments import Fields
from .base import Command

_SET_AT: Final = ("startup", "runtime")


class GetParameter(Command):
    """`getParameter`: the value of one parameter, of some, or, for `"*"`, of all."""

    name = "getParameter"
    summary = "Values of server parameters."
    admin_only = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer the values by name; with `showDetails`, how each can be set."""
        parameters = context.services.parameters
        value = request.value
        details = all_of_them = False
        set_at: str | None = None
        if isinstance(value, dict):
            fields = Fields(value, "getParameter")
            details = fields.take_bool("showDetails")
            all_of_them = fields.take_bool("allParameters")
            set_at = fields.take_string("setAt", default=None)
            fields.finish()
            if set_at is not None and set_at not in _SET_AT:
                raise BadValue(f"Enumeration value '{set_at}' for field 'getParameter.setAt' is not a valid value.")
        elif value == "*":
            all_of_them = True
        if all_of_them:
            names = [name for name in parameters if set_at is None or _settable_at(PARAMETERS[name], set_at)]
        else:
            names = [name for name in request.body if name in PARAMETERS]
        if not names:
            raise InvalidOptions("no option found to get")
        return {
            name: _with_details(PARAMETERS[name], parameters.shown(name)) if details else parameters.shown(name)
            for name in names
        }


class SetParameter(Command):
    """`setParameter`: changes parameters, all that are named or none."""

    name = "setParameter"
    summary = "Changes server parameters."
    admin_only = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{was}`, the former value of the first."""
        changes = {
            name: value
            for name, value in request.body.items()
            if name != self.name and (name not in GENERIC_FIELDS or name in PARAMETERS)
        }
        if "featureCompatibilityVersion" in changes:
            raise IllegalOperation("Use the setFeatureCompatibilityVersion command to change it")
        was = context.services.parameters.set_at_runtime(changes)
        context.services.logger.info(
            "Successfully set parameters to new values", component="COMMAND", id=23435, parameters=sorted(changes)
        )
        return {"was": was}


def _settable_at(row: Parameter, moment: str) -> bool:
    return row.startup if moment == "startup" else row.runtime


def _with_details(row: Parameter, value: object) -> Document:
    return {"value": value, "settableAtRuntime": row.runtime, "settableAtStartup": row.startup}
