"""Commands about queryable encryption. It needs a replica set, so no collection here is an encrypted one."""

from typing import Final

from ...catalog.catalog import Catalog
from ...common.errors import CommandNotSupportedOnView, Location, NamespaceNotFound
from ...common.values import Document
from ..context import Context, Request
from .arguments import Fields
from .base import Command

_NOT_ENCRYPTED: Final = 6346807


class _OfEncryptedCollections(Command):
    """Refuses every collection."""

    writes = True

    async def run(self, context: Context, request: Request) -> Document:
        """Refuse."""
        catalog: Catalog = context.services.catalog
        tokens = "compactionTokens" if self.name.startswith("compact") else "cleanupTokens"
        fields = Fields(request, known=(tokens, "encryptionInformation", "anchorPaddingTokens"))
        namespace = fields.take_namespace()
        fields.take_document(tokens)
        collection = catalog.get(namespace)
        if collection is None:
            raise NamespaceNotFound(f"Encrypted data collection '{namespace}' not found")
        if collection.kind == "view":
            raise CommandNotSupportedOnView(f"{self.name} is not supported on a view")
        raise Location(_NOT_ENCRYPTED, "Target namespace is not an encrypted collection")


class CompactStructuredEncryptionData(_OfEncryptedCollections):
    """`compactStructuredEncryptionData`."""

    name = "compactStructuredEncryptionData"
    summary = "Compacts the data of an encrypted collection."


class CleanupStructuredEncryptionData(_OfEncryptedCollections):
    """`cleanupStructuredEncryptionData`."""

    name = "cleanupStructuredEncryptionData"
    summary = "Cleans up the data of an encrypted collection."
