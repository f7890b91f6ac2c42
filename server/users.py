"""Users and roles: documents of `admin.system.users` and `admin.system.roles`, and what they add up to.

They are ordinary documents of ordinary collections, so that a backup carries them and a crash cannot half-write them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Self

from ..catalog import documents
from ..catalog.catalog import Catalog
from ..catalog.namespaces import Namespace
from ..common.errors import RoleNotFound
from ..common.values import Document, decode, encode
from ..storage.engine import Engine, Transaction
from .roles import Privilege, Privileges, builtin_privileges

USERS: Final = Namespace("admin", "system.users")
ROLES: Final = Namespace("admin", "system.roles")
_KNOWN_MAX: Final = 1000


@dataclass(frozen=True, slots=True, order=True)
class RoleName:
    """A role and the database that it is defined in."""

    role: str
    database: str

    def __str__(self) -> str:
        return f"{self.role}@{self.database}"

    @classmethod
    def from_document(cls, document: Document) -> Self:
        """From `{role, db}`."""
        return cls(document["role"], document["db"])

    def to_document(self) -> Document:
        """The form `{role, db}`."""
        return {"role": self.role, "db": self.database}


class UserStore:
    """Every user and role that was made."""

    def __init__(self, engine: Engine, catalog: Catalog) -> None:
        self._engine = engine
        self._catalog = catalog
        self._known: dict[bytes, Privileges] = {}
        """What users with built-in roles alone may do, by their documents as they are stored: another one is another key."""

    def user(self, name: str, database: str) -> Document | None:
        """The stored document of a user."""
        return self._get(USERS, f"{database}.{name}")

    def role(self, name: RoleName) -> Document | None:
        """The stored document of a role that was made."""
        return self._get(ROLES, f"{name.database}.{name.role}")

    def users(self, database: str | None = None) -> list[Document]:
        """The users of a database, or all; sorted by name and database."""
        rows = [row for row in self._all(USERS) if database is None or row["db"] == database]
        return sorted(rows, key=lambda row: (row["user"], row["db"]))

    def roles(self, database: str | None = None) -> list[Document]:
        """The made roles of a database, or all."""
        rows = [row for row in self._all(ROLES) if database is None or row["db"] == database]
        return sorted(rows, key=lambda row: (row["role"], row["db"]))

    def nobody_exists(self) -> bool:
        """True while there is neither a user nor a role: the time of the localhost exception."""
        return not self._all(USERS) and not self._all(ROLES)

    async def change(self, namespace: Namespace, *, put: Iterable[Document] = (), remove: Iterable[str] = ()) -> int:
        """Store these documents and remove those `_id`s, all or nothing; returns how many were removed."""
        kept = [(document["_id"], encode(document)) for document in put]
        gone = list(remove)
        collection = self._catalog.get(namespace)
        if collection is None:
            if not kept:
                return 0
            collection = await self._catalog.create(namespace, {})

        def work(transaction: Transaction) -> int:
            removed = 0
            for identity in gone:
                found = documents.fetch_by_id(transaction, collection, identity)
                if found is not None:
                    documents.remove(transaction, collection, *found)
                    removed += 1
            for identity, raw in kept:
                found = documents.fetch_by_id(transaction, collection, identity)
                if found is None:
                    documents.insert(transaction, collection, raw)
                else:
                    documents.replace(transaction, collection, *found, raw)
            return removed

        removed = await self._engine.write(work)
        return removed

    def check_roles(self, names: Iterable[RoleName]) -> None:
        """Refuse a role that does not exist.

        Raises:
            RoleNotFound: with the first name that is no role.
        """
        for name in names:
            if builtin_privileges(name.role, name.database) is None and self.role(name) is None:
                raise RoleNotFound(f"Could not find role: {name}")

    def closure(self, names: Iterable[RoleName]) -> list[RoleName]:
        """The roles and all that they inherit, sorted."""
        reached: set[RoleName] = set()
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name in reached:
                continue
            reached.add(name)
            document = self.role(name)
            if document is not None:
                waiting += [RoleName.from_document(row) for row in document.get("roles", [])]
        return sorted(reached)

    def privileges(self, names: Iterable[RoleName]) -> Privileges:
        """What somebody with these roles may do."""
        return Privileges.union(self.own_privileges(name) for name in self.closure(names))

    def privileges_of(self, name: str, database: str) -> Privileges | None:
        """What a user may do at this moment; None where there is no such user."""
        raw = self._raw(USERS, f"{database}.{name}")
        if raw is None:
            return None
        known = self._known.get(raw)
        if known is None:
            names = self.closure(RoleName.from_document(row) for row in decode(raw)["roles"])
            known = Privileges.union(map(self.own_privileges, names))
            if all(builtin_privileges(name.role, name.database) is not None for name in names):
                if len(self._known) >= _KNOWN_MAX:
                    self._known.clear()
                self._known[raw] = known
        return known

    def own_privileges(self, name: RoleName) -> tuple[Privilege, ...]:
        """What a role allows by itself, without those that it inherits; nothing for an unknown role."""
        builtin = builtin_privileges(name.role, name.database)
        if builtin is not None:
            return builtin
        document = self.role(name)
        return () if document is None else tuple(map(Privilege.from_document, document.get("privileges", [])))

    def _get(self, namespace: Namespace, identity: str) -> Document | None:
        raw = self._raw(namespace, identity)
        return None if raw is None else decode(raw)

    def _raw(self, namespace: Namespace, identity: str) -> bytes | None:
        collection = self._catalog.get(namespace)
        if collection is None:
            return None
        with self._engine.snapshot() as snapshot:
            found = documents.fetch_by_id(snapshot, collection, identity)
        return None if found is None else bytes(found[1])

    def _all(self, namespace: Namespace) -> list[dict[str, Any]]:
        collection = self._catalog.get(namespace)
        if collection is None:
            return []
        with self._engine.snapshot() as snapshot:
            return [decode(raw) for _, raw in documents.scan(snapshot, collection)]
