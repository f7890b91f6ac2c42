"""Every setting of the server, in one table."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """How the server was asked to run."""

    port: int = 27017
