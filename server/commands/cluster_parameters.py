"""`getClusterParameter` and `setClusterParameter`."""

from ...common.errors import BadValue, IDLFailedToParse, InvalidOptions, NoSuchKey, TypeMismatch
from ...common.values import Document, is_string, type_name
from ..cluster_parameters import ClusterParameters
from ..context import Context, Request
from .arguments import Fields
from .base import Command


class GetClusterParameter(Command):
    """`getClusterParameter`."""

    name = "getClusterParameter"
    summary = "Parameters of a whole cluster."
    admin_only = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer one document for each name."""
        held: ClusterParameters = context.services.cluster_parameters
        asked = request.value
        if is_string(asked):
            names = held.names() if asked == "*" else [asked]
        elif isinstance(asked, list):
            for position, name in enumerate(asked):
                if not is_string(name):
                    raise TypeMismatch(
                        f"BSON field 'getClusterParameter.getClusterParameter.{position}' is the wrong type "
                        f"'{type_name(name)}', expected type 'string'"
                    )
            names = list(dict.fromkeys(asked))
            if not names:
                raise BadValue("Must supply at least one cluster server parameter name to getClusterParameter")
        else:
            raise TypeMismatch(
                f"BSON field 'getClusterParameter.getClusterParameter' is the wrong type '{type_name(asked)}', expected "
                "types '[string, array]'"
            )
        return {"clusterParameters": [held.document(name) for name in names]}


class SetClusterParameter(Command):
    """`setClusterParameter`."""

    name = "setClusterParameter"
    summary = "Sets a parameter of a whole cluster."
    admin_only = True

    async def run(self, context: Context, request: Request) -> Document:
        """Answer `{}`."""
        held: ClusterParameters = context.services.cluster_parameters
        asked = Fields(request).take_document(self.name, default=None)
        if asked is None:
            raise IDLFailedToParse(
                "BSON field 'setClusterParameter.setClusterParameter' is missing but a required field"
            )
        if not asked:
            raise NoSuchKey("no cluster parameter was named")
        if len(asked) > 1:
            raise InvalidOptions("setClusterParameter only supports setting exactly one parameter")
        ((name, value),) = asked.items()
        await held.set(name, value)
        return {}
