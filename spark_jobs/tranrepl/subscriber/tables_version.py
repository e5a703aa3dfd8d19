"""Which version of tranrepl made the model's tables at a Subscriber.

Source: `MSrepl_version`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tranrepl import __version__
from tranrepl.errors import ConfigurationError, newer_version
from tranrepl.next_steps import RUN_SETUP

REVISION = 3
"""The revision of the model's tables at a Subscriber, whatever its database. It grows when one of them changes."""


@dataclass(frozen=True, slots=True)
class TablesVersion:
    """The tables' revision, and the version of tranrepl that made them or migrated them last."""

    revision: int
    version: str

    def __str__(self) -> str:
        return f"revision {self.revision} ({self.version})"

    def require_not_newer(self, where: str) -> None:
        """Raise ConfigurationError where a newer version than this one made the tables."""
        if self.revision > REVISION:
            raise newer_version(f"the tables of {where}", self.version)

    def require_current(self, where: str) -> None:
        """Raise ConfigurationError where another version made the tables."""
        self.require_not_newer(where)
        if self.revision < REVISION:
            raise ConfigurationError(f"the tables of {where} are of an earlier version of tranrepl", remedy=RUN_SETUP)


THIS_VERSION = TablesVersion(REVISION, __version__)
