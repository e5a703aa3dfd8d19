"""Random histories at a real Publisher, read from its real log: the commands are those of the reference model, and the
Subscriber ends with the rows that the Publisher publishes.

The Publisher itself records what happened row by row, by a trigger that writes an audit table.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count, groupby
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from support.databases import Databases
from support.embedded_postgres import PostgresServer
from support.in_process import deliver_commands_in_streams, read_commands
from support.propagation_model import ArticleModel, Command, Row, RowChange
from support.site import Site
from tranrepl.model.commands import Operation
from tranrepl.model.row_images import values
from tranrepl.settings.publication import StreamAssignment
from tranrepl.subscriber.batching.commit_batches import CommitLimits

EXAMPLES = int(os.environ.get("TRANREPL_FUZZ_EXAMPLES", "32"))
HISTORIES = 8
COLUMNS = ("id", "code", "note", "amount")
_numbers = count()

Fields = Mapping[str, str | None]


def _even_and_small_or_b(row: Fields) -> bool:
    small, has_b = int(row["amount"] or 0) < 3, "b" in (row["note"] or "")
    return int(row["id"] or 0) % 2 == 0 and (small or has_b)


# In the Publisher's SQL, and in Python.
FILTERS: dict[str, Callable[[Fields], bool]] = {
    "amount > 2": lambda row: int(row["amount"] or 0) > 2,
    "note = 'b'": lambda row: row["note"] == "b",
    "note IS NULL OR note <> 'b'": lambda row: row["note"] != "b",
    "id % 2 = 0 AND (\"amount\" < 3 OR note LIKE '%b%')": _even_and_small_or_b,
}


@dataclass(frozen=True)
class History:
    """Settings of one article, and what is done to its table: transactions of statements, each kept or rolled back."""

    columns: tuple[str, ...]
    settings: dict[str, str]
    transactions: tuple[tuple[bool, tuple[str, ...]], ...]

    @property
    def filter(self) -> str | None:
        return self.settings.get("filter")


_ids = st.integers(1, 6)
_codes = st.one_of(st.none(), st.integers(1, 8))
_notes = st.sampled_from([None, "", "a", "b", "a\tb\\N\n", "x" * 30])
_amounts = st.integers(1, 4)


_INSERT = "INSERT INTO %t VALUES ({id}, {code}, {note}, {amount})"
_STATEMENTS = [
    *[_INSERT] * 5,
    "UPDATE %t SET note = {note}, amount = {amount} WHERE id = {id}",
    "UPDATE %t SET note = {note} WHERE amount >= {amount}",
    "UPDATE %t SET code = {code} WHERE id = {id}",
    "UPDATE %t SET id = {other}, amount = {amount} WHERE id = {id}",
    "UPDATE %t SET id = id + {step}",
    "UPDATE %t SET code = CASE id WHEN {id} THEN {code}::int ELSE {another}::int END",
    "UPDATE %t SET amount = amount WHERE id = {id}",
    *["DELETE FROM %t WHERE id = {id}"] * 2,
    "DELETE FROM %t WHERE amount = {amount}",
    "TRUNCATE %t",
]


def _literal(value: object) -> str:
    return psycopg.sql.Literal(value).as_string(None)


@st.composite
def _statements(draw: st.DrawFn) -> str:
    template = draw(st.sampled_from(_STATEMENTS))
    chosen = {
        "id": draw(_ids),
        "other": draw(_ids),
        "code": _literal(draw(_codes)),
        "another": _literal(draw(_codes)),
        "note": _literal(draw(_notes)),
        "amount": draw(_amounts),
        "step": draw(st.sampled_from([1, -1, 7])),
    }
    return template.format(**chosen)


@st.composite
def _histories(draw: st.DrawFn) -> History:
    columns = draw(st.sampled_from([COLUMNS, COLUMNS, ("id", "note", "amount"), ("id", "code", "amount", "note")]))
    chosen = {
        "ins_cmd": draw(st.sampled_from(["CALL", "CALL", "SQL", "SQL", "NONE"])),
        "upd_cmd": draw(st.sampled_from(["CALL", "SCALL", "MCALL", "XCALL", "SQL", "SQL", "NONE"])),
        "del_cmd": draw(st.sampled_from(["CALL", "XCALL", "SQL", "SQL", "NONE"])),
        "update_policy": draw(st.sampled_from(["pairs", "singleton_update", "always_pairs"])),
        "truncate": draw(st.sampled_from(["replicate", "replicate", "ignore"])),
    }
    if draw(st.booleans()):
        chosen["filter"] = draw(st.sampled_from(sorted(FILTERS)))
    transaction = st.tuples(
        st.sampled_from([True, True, True, False]), st.lists(_statements(), min_size=1, max_size=5).map(tuple)
    )
    return History(columns, chosen, tuple(draw(st.lists(transaction, min_size=1, max_size=6))))


# What each statement did, by the Publisher's own account.
_AUDIT = """
CREATE TABLE audit (seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, xact xid8 DEFAULT pg_current_xact_id(),
    relation text, operation text, before json, after json);
CREATE FUNCTION audit_row() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO audit (relation, operation, before, after)
    VALUES (TG_TABLE_NAME, TG_OP, CASE WHEN TG_OP IN ('UPDATE', 'DELETE') THEN to_json(OLD) END,
            CASE WHEN TG_OP IN ('INSERT', 'UPDATE') THEN to_json(NEW) END);
    RETURN NULL;
END $$;
"""


class _World:
    """A Publisher and a Subscriber for all examples; each example has tables and a publication of its own."""

    def __init__(self, databases: Databases, store: Path) -> None:
        self.databases = databases
        self.store = store
        self.publisher: psycopg.Connection[tuple[Any, ...]] = psycopg.connect(
            **databases.publisher.libpq_parameters("test"),  # type: ignore[arg-type]
            autocommit=True,
        )
        self.publisher.execute(_AUDIT)

    def create(self, table: str) -> None:
        create = f"CREATE TABLE {table} (id int PRIMARY KEY, code int UNIQUE, note text, amount int NOT NULL);"
        self.publisher.execute(
            create
            + f"CREATE TRIGGER audit_row AFTER INSERT OR UPDATE OR DELETE ON {table} "
            + "FOR EACH ROW EXECUTE FUNCTION audit_row();"
            + f"CREATE TRIGGER audit_truncate AFTER TRUNCATE ON {table} "
            + "FOR EACH STATEMENT EXECUTE FUNCTION audit_row();"
        )
        with psycopg.connect(**self.databases.subscriber.libpq_parameters("test")) as subscriber:  # type: ignore[arg-type]
            # Unique at every moment, also where the Publisher's constraints are not.
            subscriber.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, code int UNIQUE, note text, amount int)")

    def act(self, table: str, history: History) -> None:
        for kept, statements in history.transactions:
            try:
                with self.publisher.transaction(force_rollback=not kept):
                    for statement in statements:
                        try:
                            with self.publisher.transaction():
                                self.publisher.execute(statement.replace("%t", table))
                        except (psycopg.errors.UniqueViolation, psycopg.errors.ObjectInUse):
                            pass
            except (psycopg.errors.UniqueViolation, psycopg.errors.ObjectInUse):
                pass

    def told(self, table: str) -> list[list[RowChange]]:
        """Return the transactions in commit order, as the audit has them."""
        rows = self.publisher.execute(
            "SELECT xact::text, operation, before, after FROM audit WHERE relation = %s ORDER BY seq", [table]
        ).fetchall()
        return [
            [RowChange(Operation[name], _row(before), _row(after)) for _, name, before, after in changes]
            for _, changes in groupby(rows, key=lambda row: row[0])
        ]


def _row(told: dict[str, object] | str | None) -> Row | None:
    if told is None:
        return None
    fields = json.loads(told) if isinstance(told, str) else told
    return tuple(None if fields[name] is None else str(fields[name]) for name in COLUMNS)


@pytest.fixture(scope="module")
def world(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[_World]:
    roles = ("publisher", "subscriber", "distribution")
    for role in roles:
        postgres.create_database(f"propagation_{role}")
    world = _World(
        Databases(*(postgres.connection(f"propagation_{role}", role) for role in roles)),
        tmp_path_factory.mktemp("store"),
    )
    yield world
    world.publisher.close()


@settings(
    deadline=None,
    max_examples=EXAMPLES,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
@given(
    st.lists(_histories(), min_size=HISTORIES, max_size=HISTORIES),
    st.sampled_from([1, 1, 1, 2]),
    st.sampled_from(StreamAssignment),
)
def test_commands_are_those_of_the_model_and_both_ends_are_equal(
    world: _World, histories: list[History], streams: int, assignment: StreamAssignment
) -> None:
    number = next(_numbers)
    tables = [f"t{number}_{at}" for at in range(len(histories))]
    for table in tables:
        world.create(table)
    site = Site(
        world.databases,
        world.store,
        [
            {"source": f"public.{table}", "columns": list(history.columns), **history.settings}
            for table, history in zip(tables, histories, strict=True)
        ],
        publication=f"p{number}",
    )
    site.set_up()
    for table, history in zip(tables, histories, strict=True):
        world.act(table, history)
    read = read_commands(site)
    _drop_publication(world)
    commands = read.commands
    by_table = {article.source.table: number for number, article in read.articles.items()}
    whole = []
    for table, history in zip(tables, histories, strict=True):
        of_table = commands.filter(pc.equal(commands["article_id"], by_table[table]))
        told = world.told(table)
        expected = [it for it in (_model(history).commands(transaction) for transaction in told) if it]
        assert _by_transaction(of_table) == expected, (history, told)
        if not {"NONE", "ignore"} & set(history.settings.values()):
            whole.append((table, history))
    chosen = pa.array([by_table[table] for table, _ in whole], pa.int32())
    to_apply = replace(read, commands=commands.filter(pc.is_in(commands["article_id"], value_set=chosen)))
    first, retried = deliver_commands_in_streams(site, to_apply, CommitLimits(3, 1000), streams, assignment)
    retried.raise_error()
    assert first.commands + retried.commands == len(to_apply.commands)
    assert first.error is None or assignment is StreamAssignment.KEY
    for table, history in whole:
        columns = ", ".join(history.columns)
        where = f"WHERE {history.filter}" if history.filter else ""
        published = site.at_publisher(f"SELECT {columns} FROM {table} {where} ORDER BY id")
        assert site.at_subscriber(f"SELECT {columns} FROM {table} ORDER BY id") == published, history


def _model(history: History) -> ArticleModel:
    # Columns travel in the table's order, whatever the settings' is.
    published = [name for name in COLUMNS if name in history.columns]
    condition = FILTERS.get(history.filter or "")
    unique = tuple(at for at, name in enumerate(published) if name in ("id", "code"))

    def is_published(row: Row) -> bool:
        fields = dict(zip(published, row, strict=True))
        return condition is None or condition(fields)

    return ArticleModel(
        positions=tuple(COLUMNS.index(name) for name in published),
        key=(published.index("id"),),
        unique=unique,
        is_published=is_published,
        **{it: history.settings[it] for it in ("update_policy", "truncate", "ins_cmd", "upd_cmd", "del_cmd")},
    )


def _by_transaction(commands: pa.Table) -> list[list[Command]]:
    transactions = [list(group) for _, group in groupby(commands.to_pylist(), key=lambda row: row["xact_seqno"])]
    for transaction in transactions:
        assert [row["command_id"] for row in transaction] == list(range(1, len(transaction) + 1))
    return [[_command(row) for row in transaction] for transaction in transactions]


def _command(row: dict[str, Any]) -> Command:
    before, after = (None if row[it] is None else tuple(values(row[it])) for it in ("before", "after"))
    return Operation(row["operation"]).name, before, after, row["changed"] and row["changed"].hex()


def _drop_publication(world: _World) -> None:
    """Drop the publication: slots are few, and hold the log."""
    world.publisher.execute(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
        "WHERE database = current_database() AND NOT temporary"
    )
    for (name,) in world.publisher.execute("SELECT quote_ident(pubname) FROM pg_publication").fetchall():
        world.publisher.execute(f"DROP PUBLICATION {name}")
