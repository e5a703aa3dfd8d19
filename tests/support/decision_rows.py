"""The table of decisions on schema changes, as real DDL: each row has a table of its own, `{t}`.

Source: the decision table of `docs/reference/schema-changes.md`, and what stands behind it there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_COLUMNS = "id int PRIMARY KEY, a int, b varchar(10)"


@dataclass(frozen=True)
class DecisionRow:
    """One schema change in the middle of a transaction, with rows of its table on either side of it."""

    name: str
    change: tuple[str, ...]
    columns: str = _COLUMNS
    first: str = "INSERT INTO {t} (id, a) VALUES (1, 1)"
    before: tuple[str, ...] = ("INSERT INTO {t} (id, a, b) VALUES (2, 2, 'two')",)
    after: tuple[str, ...] = ("INSERT INTO {t} (id, a) VALUES (3, 3)", "UPDATE {t} SET a = 9 WHERE id = 1")
    later: tuple[str, ...] = ()
    """In a transaction of its own."""
    now: str = "{t}"
    """The table's name afterwards."""
    article: Mapping[str, object] = field(default_factory=dict)
    told: str | None = None
    """What the log reader says."""
    lacking: tuple[str, ...] = ()
    """Columns that the Subscribers do not get."""
    looser: tuple[str, ...] = ()
    """Columns that may be NULL at the Subscribers."""
    filtered: str = "true"
    """Which rows of the Publisher's the article has."""
    copied: bool = False
    """The article is reinitialized."""
    version: int = 15
    """The first version of PostgreSQL that has it."""

    def texts(self, statements: tuple[str, ...]) -> list[str]:
        table = f"d_{self.name}"
        return [it.replace("{now}", self.now).replace("{t}", table) for it in statements]

    @property
    def source(self) -> str:
        return self.texts((self.now,))[0]


def _column(change: str, *, copied: bool = False, told: str | None = None, name: str, **more: object) -> DecisionRow:
    return DecisionRow(name, (f"ALTER TABLE {{t}} {change}",), copied=copied, told=told, **more)  # type: ignore[arg-type]


_SOME = {"columns": ["id", "a"]}
_INSERTED = ("INSERT INTO {t} (id, a) VALUES (3, 3)",)

TYPES = (
    "CREATE TYPE mood AS ENUM ('sad', 'happy')",
    "CREATE TYPE taste AS ENUM ('sweet')",
    "CREATE TYPE colour AS ENUM ('red', 'green')",
    "CREATE TYPE pair AS (n int, v text)",
    "CREATE DOMAIN small AS int CHECK (VALUE < 100)",
)
"""To be made at both ends."""

ROWS = (
    _column("ADD COLUMN c int", name="add_plain"),
    _column("ADD COLUMN c text NOT NULL DEFAULT 'it''s'", name="add_known"),
    _column("ADD c bigint DEFAULT (extract(epoch FROM now()) * 1000000)::bigint", name="add_stable"),
    _column("ADD COLUMN c int DEFAULT 5", name="add_chosen", article=_SOME, told="c is not among", lacking=("b", "c")),
    _column("ADD COLUMN c int DEFAULT (random() * 1000)::int", name="add_volatile", copied=True),
    _column("ADD COLUMN c serial", name="add_serial", copied=True, looser=("c",)),
    _column("ADD COLUMN c int GENERATED ALWAYS AS IDENTITY", name="add_identity", copied=True, looser=("c",)),
    _column("ADD COLUMN c int GENERATED ALWAYS AS (a + 1) STORED", name="add_stored", told="c is generated"),
    _column(
        "ADD COLUMN c int GENERATED ALWAYS AS (a + 1)",
        name="add_virtual",
        told="c is generated",
        version=18,
        after=_INSERTED,
    ),
    _column("DROP COLUMN b", name="drop_published"),
    _column("DROP COLUMN b", name="drop_other", article=_SOME),
    _column("RENAME a TO c", name="rename", after=("UPDATE {t} SET c = 9 WHERE id = 1",)),
    DecisionRow(
        "swap",
        tuple(f"ALTER TABLE {{t}} RENAME {it}" for it in ("a TO x", "b TO a", "x TO b")),
        after=("UPDATE {t} SET a = 'nine' WHERE id = 1",),
    ),
    DecisionRow(
        "rename_chosen",
        ("ALTER TABLE {t} RENAME a TO c",),
        after=("UPDATE {t} SET c = -1 WHERE id = 2", "INSERT INTO {t} (id, c, b) VALUES (3, 3, 'three')"),
        article={"columns": ["id", "a", "b"], "filter": "a > 0", "lob_columns": ["b"], "replica_identity": "full"},
        filtered="c > 0",
    ),
    _column("ALTER COLUMN b TYPE varchar(20)", name="widen", after=("UPDATE {t} SET b = repeat('w', 20)",)),
    _column("ALTER COLUMN b TYPE text", name="widen_to_text", after=("UPDATE {t} SET b = repeat('w', 30)",)),
    _column("ALTER COLUMN a TYPE bigint", name="rewrite_type", copied=True),
    _column("ALTER COLUMN a TYPE text USING 'n' || a", name="rewrite_using", copied=True, after=_INSERTED),
    _column(
        "ALTER COLUMN a DROP NOT NULL",
        name="drop_not_null",
        columns="id int PRIMARY KEY, a int NOT NULL, b text",
        after=("UPDATE {t} SET a = NULL",),
    ),
    _column("ALTER COLUMN a SET NOT NULL", name="set_not_null", told="a is NOT NULL now", looser=("a",)),
    _column("ADD CHECK (a > 0)", name="add_check", told="stays at the Publisher"),
    _column("ADD FOREIGN KEY (a) REFERENCES referenced", name="add_foreign_key", told="stays at the Publisher"),
    _column("ALTER COLUMN a SET DEFAULT 7", name="set_default", told="a has another default"),
    DecisionRow("add_index", ("CREATE INDEX ON {t} (a)",), told="stays at the Publisher"),
    DecisionRow("add_unique", ("CREATE UNIQUE INDEX u_{t} ON {t} (a)",), told="unique index u_d_add_unique is not"),
    _column("ADD CONSTRAINT c_{t} UNIQUE (a)", name="add_constraint", told="unique index c_d_add_constraint is not"),
    _column(
        "DROP CONSTRAINT {t}_pkey, ADD PRIMARY KEY (a)",
        name="new_key",
        columns="id int PRIMARY KEY, a int NOT NULL, b varchar(10)",
        after=("UPDATE {t} SET id = 1", "INSERT INTO {t} VALUES (1, 4, 'four')"),
        copied=True,
    ),
    _column(
        "REPLICA IDENTITY DEFAULT",
        name="key_identity",
        first="ALTER TABLE {t} REPLICA IDENTITY FULL; INSERT INTO {t} (id, a) VALUES (1, 1)",
        told="its replica identity is default",
    ),
    _column(
        "RENAME TO d_called_so",
        name="rename_table",
        now="d_called_so",
        told="the table is public.d_called_so now",
        after=("INSERT INTO {now} (id, a) VALUES (3, 3)",),
    ),
    _column(
        "SET SCHEMA elsewhere",
        name="moved",
        now="elsewhere.{t}",
        told="the table is elsewhere.d_moved now",
        after=("INSERT INTO {now} (id, a) VALUES (3, 3)",),
    ),
    DecisionRow(
        "add_label",
        ("ALTER TYPE mood ADD VALUE 'glad' BEFORE 'happy'",),
        columns="id int PRIMARY KEY, a mood, b mood[]",
        before=("INSERT INTO {t} VALUES (2, 'sad', '{sad,happy}')",),
        first="INSERT INTO {t} VALUES (1, 'happy', '{happy}')",
        after=(),
        later=("INSERT INTO {t} VALUES (3, 'glad', '{glad}')", "UPDATE {t} SET b = '{sad,glad}' WHERE id = 2"),
    ),
    DecisionRow(
        "add_label_of_array",
        ("ALTER TYPE taste ADD VALUE 'sour'",),
        columns="id int PRIMARY KEY, a taste[]",
        before=("INSERT INTO {t} VALUES (2, '{sweet}')",),
        first="INSERT INTO {t} VALUES (1, NULL)",
        after=(),
        later=("INSERT INTO {t} VALUES (3, '{sour,sweet}')",),
    ),
    DecisionRow(
        "rename_label",
        ("ALTER TYPE colour RENAME VALUE 'red' TO 'crimson'",),
        columns="id int PRIMARY KEY, a colour",
        before=("INSERT INTO {t} VALUES (2, 'red')",),
        first="INSERT INTO {t} VALUES (1, 'green')",
        after=("INSERT INTO {t} VALUES (3, 'crimson')",),
        copied=True,
    ),
    DecisionRow(
        "type_owner",
        ("ALTER TYPE pair OWNER TO CURRENT_USER", "ALTER DOMAIN small OWNER TO CURRENT_USER"),
        columns="id int PRIMARY KEY, a int, p pair, s small",
        before=("INSERT INTO {t} VALUES (2, 2, '(1,x)', 2)",),
    ),
    DecisionRow(
        "rename_stored",
        ("ALTER TABLE {t} RENAME c TO d",),
        columns="id int PRIMARY KEY, a int, b text, c int GENERATED ALWAYS AS (a + 1) STORED",
    ),
)
"""Rows after which all goes on. Each table begins with row 1."""
