"""Names: of databases, of collections, and of the buckets behind a time-series collection."""

from dataclasses import dataclass
from typing import Final, Self

from ..common.errors import InvalidNamespace

BUCKETS_PREFIX: Final = "system.buckets."
NAMESPACE_BYTES_MAX: Final = 255
DATABASE_BYTES_MAX: Final = 63
_NOT_IN_DATABASES: Final = frozenset('/\\. "$\0')


@dataclass(frozen=True, slots=True, order=True)
class Namespace:
    """A database and a collection in it."""

    database: str
    collection: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """From `database.collection`; the collection may hold further dots, or be missing."""
        database, _, collection = text.partition(".")
        return cls(database, collection)

    def __str__(self) -> str:
        return f"{self.database}.{self.collection}"

    @property
    def is_buckets(self) -> bool:
        """Whether buckets of a time-series collection live here."""
        return self.collection.startswith(BUCKETS_PREFIX)

    @property
    def buckets(self) -> "Namespace":
        """Where the buckets of the time-series collection of this name live."""
        return Namespace(self.database, BUCKETS_PREFIX + self.collection)

    @property
    def view_of_buckets(self) -> "Namespace":
        """The time-series collection whose buckets live here."""
        return Namespace(self.database, self.collection.removeprefix(BUCKETS_PREFIX))

    @property
    def is_system(self) -> bool:
        """Whether the name is one that the server keeps for itself."""
        return self.collection.startswith("system.")


def validate_database_name(name: str) -> None:
    """Refuse a name that no database can have.

    Raises:
        InvalidNamespace: empty, too long, or with a character that is not allowed.
    """
    if not name or len(name.encode()) > DATABASE_BYTES_MAX or not _NOT_IN_DATABASES.isdisjoint(name):
        raise InvalidNamespace(f"Invalid database name: '{name}'")


def validate_collection_name(namespace: Namespace) -> None:
    """Refuse a name that no new collection can have.

    Raises:
        InvalidNamespace: empty, too long, with `$` or NUL, or with a leading dot.
    """
    validate_database_name(namespace.database)
    name = namespace.collection
    if not name or name.startswith(".") or "\0" in name:
        raise InvalidNamespace(f"Invalid namespace specified '{namespace}'")
    if "$" in name and not (namespace.database == "local" and name.startswith("oplog.$")):
        raise InvalidNamespace(f"Invalid collection name: {name}")
    if len(str(namespace).encode()) > NAMESPACE_BYTES_MAX:
        raise InvalidNamespace(
            f"Fully qualified namespace is too long. Namespace: {namespace} Max: {NAMESPACE_BYTES_MAX}"
        )
