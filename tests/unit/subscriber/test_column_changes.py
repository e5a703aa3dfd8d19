"""What a schema change leaves to do at a table that is there, and the statements of databases that no test reaches."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from support.command_history import Column, registered, table_description
from support.schema_changes import added, change, dropped, nullable, renamed, retyped
from tranrepl.errors import ConfigurationError, DataError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.names import TableName
from tranrepl.model.schema_change import ColumnChange, LabelChange
from tranrepl.model.table_definition import TableDefinition, UniqueConstraint
from tranrepl.settings.publication import Article
from tranrepl.subscriber.base.column_changes import ColumnPlan, RowUpdate, SqlColumnTypes, column_plan, reload_reason
from tranrepl.subscriber.base.column_steps import (
    AddedColumn,
    DroppedColumn,
    NullableColumn,
    RenamedColumn,
    RetypedColumn,
    TableColumn,
)
from tranrepl.subscriber.mariadb.database import MariaDb

_MARIADB = MariaDb("mysql")
_DIALECT = _MARIADB.dialect()
_TYPES = SqlColumnTypes(_MARIADB, _DIALECT)
ID, NAME = Column("id", "integer", key=1), Column("name", "character varying(20)")
_THERE = (TableColumn("id", "integer", nullable=False), TableColumn("name", "varchar(20)", nullable=False))


def _article(*columns: Column) -> RegisteredArticle:
    name = TableName("public", "vendor")
    return registered(Article.model_validate({"source": name}), table_description(name, columns), len(columns))


def _plan(
    new: Sequence[Column],
    *changes: ColumnChange,
    there: Sequence[TableColumn] = _THERE,
    labels: Sequence[LabelChange] = (),
) -> ColumnPlan:
    old, after = _article(ID, NAME), _article(*new)
    of_table = change(old, after, *changes, labels=labels)
    return column_plan(_TYPES, of_table, old, after, there, "Subscriber reporting")


def test_each_part_is_done_in_its_order() -> None:
    total = Column("total", "numeric(10,2)")
    plan = _plan([ID, total], nullable("name"), renamed("name", "title"), dropped("title"), added(total, "1.50"))
    *others, add = plan.steps
    assert others == [NullableColumn("name"), RenamedColumn("name", "title"), DroppedColumn("title")]
    assert isinstance(add, AddedColumn)
    assert (add.name, str(add.type), str(add.value)) == ("total", "DECIMAL(10, 2)", "1.50")


def test_what_is_done_already_is_passed_over() -> None:
    there = (
        _THERE[0],
        TableColumn("title", "varchar(20)", nullable=True),
        TableColumn("total", "integer", nullable=True),
    )
    total = Column("total", "integer")
    steps = (renamed("name", "title"), nullable("title"), dropped("city"), added(total, "7"))
    assert _plan([ID, Column("title", NAME.type_name), total], *steps, there=there) == ColumnPlan(
        # Nobody knows what the rows were given.
        updates=(RowUpdate("total", "7"),),
        at="Subscriber reporting: table public.vendor",
    )


def test_a_column_of_another_type_is_kept_where_setups_would_not_hold_the_value() -> None:
    total = Column("total", "numeric(5,2)")
    there = (*_THERE, TableColumn("total", "longtext", nullable=True))
    assert _plan([ID, NAME, total], added(total, "NaN"), there=there).updates == (RowUpdate("total", "NaN"),)


def test_a_column_that_takes_the_name_of_the_key_is_made_as_none_of_the_key() -> None:
    swapped = (renamed("new", "by_the_way"), renamed("id", "new"), renamed("by_the_way", "id"))
    columns = [Column("new", "integer", key=1), NAME, Column("id", "text")]
    add, *_ = _plan(columns, added(Column("new", "text"), "x"), *swapped).steps
    assert isinstance(add, AddedColumn)
    assert add.spelling == "longtext"


@pytest.mark.parametrize(
    ("before", "after", "made"),
    [
        ("varchar(20)", "character varying(40)", "varchar(40)"),
        ("varchar(20)", "text", "longtext"),
        # A type that somebody chose.
        ("varchar(100)", "character varying(40)", None),
        ("longtext", "character varying(40)", None),
    ],
)
def test_a_column_as_setup_made_it_gets_the_longer_type(before: str, after: str, made: str | None) -> None:
    there = (_THERE[0], TableColumn("name", before, nullable=True))
    plan = _plan([ID, Column("name", after)], retyped(Column("name", after)), there=there)
    types = [_MARIADB.described_type(it.type, _DIALECT).spelling for it in plan.steps if isinstance(it, RetypedColumn)]
    assert types == ([] if made is None else [made])


def test_a_table_that_does_not_fit_is_refused_with_the_way_on() -> None:
    both = (*_THERE, TableColumn("title", "varchar(20)", nullable=True))
    with pytest.raises(ConfigurationError, match="name is to be renamed to title, and there is a column title"):
        _plan([ID, Column("title")], renamed("name", "title"), there=both)
    other = (*_THERE, TableColumn("total", "longtext", nullable=True))
    with pytest.raises(ConfigurationError, match="total is to be added, of type integer, and there is a column total"):
        _plan([ID, NAME, Column("total", "integer")], added(Column("total", "integer"), "7"), there=other)
    with pytest.raises(ConfigurationError, match="has no column name, which is to be changed"):
        _plan([ID, Column("title")], renamed("name", "title"), there=_THERE[:1])
    with pytest.raises(DataError, match=r"column n, which is to be added: 'NaN' does not fit decimal\(5, 2\)"):
        _plan([ID, NAME, Column("n", "numeric(5,2)")], added(Column("n", "numeric(5,2)"), "NaN"))


@pytest.mark.parametrize(
    ("before", "after", "known"),
    [
        ("character varying(20)", "text", True),
        ("numeric(10,2)", "numeric", True),
        ("interval(0)", "interval", True),
        ("character varying(5)[]", "character varying(9)[]", True),
        ("cidr", "inet", False),
        ("integer", "oid", False),
        ("timestamp with time zone", "timestamp without time zone", False),
    ],
)
def test_rows_are_known_where_a_value_is_written_alike_in_both_types(before: str, after: str, known: bool) -> None:
    old = _article(ID, Column("c", before))
    of_table = change(old, _article(ID, Column("d", after)), renamed("c", "d"), retyped(Column("d", after)))
    assert (reload_reason(of_table, old) is None) is known


def test_a_column_whose_values_are_written_otherwise_is_made_anew() -> None:
    number = Column("name", "integer")
    plan = _plan([ID, number], retyped(number))
    assert [it.in_words() for it in plan.steps] == ["DROP COLUMN name", "ADD COLUMN name integer"]


@pytest.mark.parametrize(
    ("rows_unknown", "done"),
    [(None, []), ("they were rewritten", ["DROP COLUMN name", "ADD COLUMN name varchar(10)"])],
)
def test_a_column_gets_less_room_where_its_rows_are_copied_anew(rows_unknown: str | None, done: list[str]) -> None:
    old, new = _article(ID, NAME), _article(ID, Column("name", "character varying(10)"))
    shorter = change(old, new, retyped(Column("name", "character varying(10)")))
    of_table = shorter.model_copy(update={"rows_unknown": rows_unknown})
    plan = column_plan(_TYPES, of_table, old, new, _THERE, "Subscriber reporting")
    assert [it.in_words() for it in plan.steps] == done


@pytest.mark.parametrize(
    ("there", "done"),
    [
        ("longtext", ["DROP COLUMN name", "ADD COLUMN name varchar(100)"]),
        ("varchar(255)", ["DROP COLUMN name", "ADD COLUMN name varchar(100)"]),
        # A type that somebody chose.
        ("varchar(200)", []),
    ],
)
def test_a_column_as_setup_made_it_is_known_whether_it_was_unique_then_or_not(there: str, done: list[str]) -> None:
    old, shorter = _article(ID, Column("name", "text")), Column("name", "character varying(100)")
    plain = _article(ID, shorter)
    of_table = change(old, plain, retyped(shorter)).model_copy(update={"rows_unknown": "they were rewritten"})
    unique = [it.model_copy(update={"unique": True}) for it in plain.columns]
    columns = (_THERE[0], TableColumn("name", there, nullable=True))
    for new in (plain, plain.model_copy(update={"columns": tuple(unique)})):
        plan = column_plan(_TYPES, of_table, old, new, columns, "Subscriber reporting")
        assert [it.in_words() for it in plan.steps] == done


def test_a_column_that_a_unique_index_may_read_keeps_its_room() -> None:
    """An index of an expression makes every column of the article one that may be unique."""
    text = Column("name", "text")
    new = _article(ID, text)
    index = {"name": "item_lower", "primary": False, "immediate": True, "partial": False, "identity": False}
    definition = TableDefinition(
        name=new.source,
        replica_identity="full",
        persistence="permanent",
        columns=(),
        unique=(UniqueConstraint.model_validate({**index, "columns": [0]}),),
    )
    columns = tuple(it.model_copy(update={"unique": True}) for it in new.columns)
    new = new.model_copy(update={"columns": columns, "source_definition": definition})
    of_table = change(_article(ID, NAME), new, retyped(text))
    plan = column_plan(_TYPES, of_table, _article(ID, NAME), new, _THERE, "Subscriber reporting")
    assert [it.in_words() for it in plan.steps] == ["ALTER COLUMN name TYPE longtext"]
