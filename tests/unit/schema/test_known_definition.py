"""A table after a command that did not lock it, while other transactions altered it."""

from __future__ import annotations

import pytest

from tranrepl.model.names import TableName
from tranrepl.model.position import Position
from tranrepl.model.table_definition import DefinedColumn, DefinedType, TableDefinition, UniqueConstraint
from tranrepl.schema.known_definition import definition_after
from tranrepl.schema.messages import AlteredTable, Subject

_EARLIER, _LATER = (Position(it.to_bytes(8, "big")) for it in (1000, 2000))


def _column(ordinal: int, name: str, labels: tuple[str, ...] | None = None) -> DefinedColumn:
    types = () if labels is None else (DefinedType(oid=20_000, name="mood", labels=labels, form=""),)
    type_oid, type_name = (23, "integer") if labels is None else (20_000, "mood")
    return DefinedColumn(
        ordinal=ordinal,
        name=name,
        type_oid=type_oid,
        type_modifier=-1,
        type_name=type_name,
        not_null=False,
        default="1",
        types=types,
    )


def _table(*columns: DefinedColumn, name: str = "s.t", unique: tuple[str, ...] = ()) -> TableDefinition:
    schema, _, table = name.partition(".")
    constraints = [
        UniqueConstraint(name=it, primary=False, immediate=True, partial=False, identity=False, columns=(1,))
        for it in unique
    ]
    return TableDefinition(
        name=TableName(schema, table),
        replica_identity="full",
        persistence="permanent",
        columns=columns,
        unique=tuple(constraints),
        holds_from=_EARLIER,
    )


_SUBJECTS = {
    "ALTER TABLE": Subject.TABLE,
    "DROP INDEX": Subject.INDEX,
    "ALTER TYPE": Subject.TYPE,
    "ALTER DOMAIN": Subject.DOMAIN,
    "ALTER SCHEMA": Subject.SCHEMA,
}


def _after(before: TableDefinition, told: TableDefinition, tag: str, *, locked: bool = False) -> TableDefinition:
    now = told.model_copy(update={"holds_from": _LATER})
    found = definition_after(before, AlteredTable(1, tag, now, _SUBJECTS[tag], is_locked=locked))
    assert found.holds_from == _LATER
    return found


def test_columns_of_an_earlier_commit_stay_where_a_type_is_altered() -> None:
    before = _table(_column(1, "id"), _column(2, "feeling", ("sad",)), _column(3, "added"), unique=("made",))
    told = _table(_column(1, "old_name"), _column(2, "feeling", ("sad", "glad")))
    found = _after(before, told, "ALTER TYPE")
    assert [it.name for it in found.columns] == ["id", "feeling", "added"]
    assert found.by_ordinal[2] == _column(2, "feeling", ("sad", "glad"))
    assert [it.name for it in found.unique] == ["made"]


def test_a_column_dropped_by_an_earlier_commit_stays_dropped() -> None:
    found = _after(_table(_column(1, "id")), _table(_column(1, "id"), _column(2, "gone")), "ALTER DOMAIN")
    assert list(found.by_ordinal) == [1]


def test_a_schema_changes_its_name_and_not_the_tables() -> None:
    found = _after(_table(_column(1, "id"), name="s.renamed"), _table(_column(1, "id"), name="u.t"), "ALTER SCHEMA")
    assert found.name == TableName("u", "renamed")


def test_an_index_that_is_dropped_concurrently_is_gone() -> None:
    before = _table(_column(1, "id"), _column(2, "added"), unique=("dropped",))
    found = _after(before, _table(_column(1, "id")), "DROP INDEX")
    assert (list(found.by_ordinal), found.unique) == ([1, 2], ())


def test_a_locked_table_is_as_it_is_told() -> None:
    told = _table(_column(1, "renamed"), name="s.u")
    assert _after(_table(_column(1, "id"), _column(2, "dropped")), told, "ALTER TABLE", locked=True) == told.model_copy(
        update={"holds_from": _LATER}
    )


@pytest.mark.parametrize("locked", [True, False])
def test_labels_of_an_earlier_commit_stay(locked: bool) -> None:
    before = _table(_column(1, "feeling", ("sad", "glad")))
    found = _after(before, _table(_column(1, "feeling", ("sad",))), "ALTER TABLE", locked=locked)
    assert found.columns == before.columns
