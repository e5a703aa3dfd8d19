"""What a Subscriber's database can do, as far as others ask."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


class NameUnit(Enum):
    """What a database counts in a name."""

    BYTES = auto()
    """Names are limited in bytes of UTF-8."""
    CHARACTERS = auto()
    UTF_16 = auto()
    """Code units of UTF-16, as `nvarchar` does."""


@dataclass(frozen=True, slots=True)
class NameLimit:
    """How long a name may be; without a length, as long as it likes."""

    length: int | None = None
    unit: NameUnit = NameUnit.CHARACTERS

    def fits(self, name: str) -> bool:
        return self.length is None or self._measured(name) <= self.length

    def cut(self, name: str, end: str) -> str:
        """Return as many characters of the name as leave room for `end`, and `end`."""
        kept = name
        while not self.fits(kept + end):
            kept = kept[:-1]
        return kept + end

    def _measured(self, name: str) -> int:
        match self.unit:
            case NameUnit.BYTES:
                return len(name.encode())
            case NameUnit.UTF_16:
                return len(name.encode("utf-16-le")) // 2
            case NameUnit.CHARACTERS:
                return len(name)


class NameCase(Enum):
    """Whether two names that differ in case alone name two things."""

    SENSITIVE = auto()
    INSENSITIVE = auto()


class ForeignKeyCheck(Enum):
    """When a database checks the foreign keys that setup makes."""

    NONE = auto()
    """Setup creates no foreign keys there."""
    AT_COMMIT = auto()
    AT_ONCE = auto()
    """A cascade's own commands come after their parent's: such a key can be there only where it does not act."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a database can do, as far as `check` and the delivery ask."""

    title: str
    """The database's name, as in "a PostgreSQL procedure"."""
    procedures: bool
    """Commands can be applied by procedures. Without them, every operation of an article must say `SQL` or `NONE`."""
    most_arguments: int | None
    """Arguments that a procedure takes at most; None where there is no limit that a table could reach."""
    procedure_names: NameLimit
    """A longer name of a procedure is cut, and ends in a hash."""
    name_case: NameCase
    """The case of procedures' names."""
    streams: bool
    """Several sessions can write at once, and have a timeout for the locks that they wait for."""
    schemas: bool
    """A table's name has a schema. Without, `schema.table` of a destination is just `table`."""
    foreign_keys: ForeignKeyCheck = ForeignKeyCheck.NONE
    """When a foreign key that setup makes is checked."""
    comparison: bool = False
    """Its rows can be compared with the Publisher's, and repaired."""
    scripts: bool = False
    """Scripts of `tranrepl exec FILE` run there."""
    not_for_replication: bool = False
    """A session can keep foreign keys (and, where the database can, triggers) from acting."""
    why_for_replication: str = ""
    """Why a session cannot, where there is more to say than that."""
    script_start: str = ""
    """What a script of procedures begins with, for the database's own shell."""
    script_end: str = ";\n\n"
    """What ends each procedure there."""
