"""Random histories of DDL and DML: both ends are equal by content and by shape, whenever the jobs run."""

from __future__ import annotations

import os
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from conftest import DatabasesFactory
from support.site import Site
from support.spark_here import SparkHere

EXAMPLES = int(os.environ.get("TRANREPL_FUZZ_EXAMPLES", "3"))
_SHAPE = """SELECT column_name, data_type, character_maximum_length FROM information_schema.columns
WHERE table_schema = 'public' AND table_name = 't' ORDER BY column_name"""

_DROP_SLOT = """SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots
WHERE database = current_database()"""


@dataclass(frozen=True)
class Statement:
    """One statement; `number` chooses the row and the column that it is about."""

    kind: str
    number: int


@dataclass(frozen=True)
class Transaction:
    """Statements of one transaction; those of `undone` are in a savepoint that is rolled back, after the first ones."""

    statements: tuple[Statement, ...]
    undone: tuple[Statement, ...]
    rolled_back: bool
    run_after: bool


_ROWS = ["insert"] * 4 + ["update"] * 4 + ["delete"] * 2
_CHANGES = ["add", "add default", "add volatile", "drop", "rename", "widen", "retype", "truncate", "not null"]
_statements = st.builds(Statement, st.sampled_from(_ROWS + _CHANGES), st.integers(0, 9))
_histories = st.lists(
    st.builds(
        Transaction,
        st.lists(_statements, min_size=1, max_size=5).map(tuple),
        st.lists(_statements, max_size=2).map(tuple),
        st.sampled_from([False] * 5 + [True]),
        st.sampled_from([False] * 3 + [True]),
    ),
    min_size=4,
    max_size=12,
)


class _Writer:
    """Writes SQL for a table whose columns it knows, as one session's transactions change them."""

    def __init__(self) -> None:
        self.columns: dict[str, str] = {"a": "integer", "b": "text"}
        self._made = 0

    def script(self, transaction: Transaction) -> str:
        before = dict(self.columns)
        first = self._texts(transaction.statements)
        middle = dict(self.columns)
        undone = self._texts(transaction.undone)
        self.columns = before if transaction.rolled_back else middle
        end = "ROLLBACK" if transaction.rolled_back else "COMMIT"
        return "; ".join(["BEGIN", *first, "SAVEPOINT here", *undone, "ROLLBACK TO here", end])

    def _texts(self, statements: tuple[Statement, ...]) -> list[str]:
        return [text for it in statements if (text := self._text(it)) is not None]

    def _text(self, it: Statement) -> str | None:
        row, value = it.number, f"'{it.number}'"
        chosen = sorted(self.columns)[it.number % len(self.columns)] if self.columns else None
        match it.kind:
            case "insert":
                names = ", ".join(["id", *self.columns])
                values = ", ".join([str(row), *[value] * len(self.columns)])
                return f"INSERT INTO t ({names}) VALUES ({values}) ON CONFLICT DO NOTHING"
            case "update" if chosen is not None:
                return f"UPDATE t SET {chosen} = {value} WHERE id >= {row} AND id < {row} + 3"
            case "delete":
                return f"DELETE FROM t WHERE id = {row}"
            case "truncate":
                return "TRUNCATE t" if row == 0 else None
            case _:
                return self._change(it, chosen)

    def _change(self, it: Statement, chosen: str | None) -> str | None:
        if it.kind.startswith("add"):
            self._made += 1
            name, type_name = f"c{self._made}", ["integer", "text", "varchar(5)", "numeric(9,2)"][it.number % 4]
            self.columns[name] = type_name
            default = {
                "add": "",
                "add default": f" NOT NULL DEFAULT '{it.number}'",
                "add volatile": " DEFAULT random()",
            }
            if it.kind == "add volatile":
                self.columns[name] = type_name = "double precision"
            return f"ALTER TABLE t ADD COLUMN {name} {type_name}{default[it.kind]}"
        if chosen is None:
            return None
        match it.kind:
            case "drop":
                del self.columns[chosen]
                return f"ALTER TABLE t DROP COLUMN {chosen}"
            case "rename":
                self._made += 1
                self.columns[f"r{self._made}"] = self.columns.pop(chosen)
                return f"ALTER TABLE t RENAME COLUMN {chosen} TO r{self._made}"
            case "not null":
                return f"ALTER TABLE t ALTER COLUMN {chosen} DROP NOT NULL"
            case "widen" if self.columns[chosen].startswith("varchar"):
                self.columns[chosen] = "text"
                return f"ALTER TABLE t ALTER COLUMN {chosen} TYPE text"
            case "retype" if self.columns[chosen] == "integer":
                self.columns[chosen] = "bigint"
                return f"ALTER TABLE t ALTER COLUMN {chosen} TYPE bigint USING {chosen} + 1"
            case _:
                return None


def _run(site: Site) -> None:
    """What a scheduled DAG does: deliver, and copy the articles that wait for a snapshot."""
    site.run()
    site.take_snapshot()


@given(_histories)
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
def test_both_ends_are_equal_by_rows_and_by_columns(
    databases: DatabasesFactory, tmp_path_factory: pytest.TempPathFactory, history: list[Transaction]
) -> None:
    subscription = {"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}
    article = {"source": "public.t", "pre_creation_cmd": "truncate"}
    site = Site(
        databases(), tmp_path_factory.mktemp("store"), [article], SparkHere(), [subscription], replicate_ddl=True
    )
    site.at_publisher("CREATE TABLE t (id integer PRIMARY KEY, a integer, b text)")
    site.set_up()
    site.take_snapshot()
    try:
        _play(site, history)
    finally:
        site.at_publisher(_DROP_SLOT)


def _play(site: Site, history: list[Transaction]) -> None:
    writer = _Writer()
    for transaction in history:
        site.at_publisher(writer.script(transaction))
        if transaction.run_after:
            _run(site)
            assert (site.at_subscriber(_SHAPE), site.differences()) == (site.at_publisher(_SHAPE), [])
    _run(site)
    assert (site.at_subscriber(_SHAPE), site.differences()) == (site.at_publisher(_SHAPE), [])
