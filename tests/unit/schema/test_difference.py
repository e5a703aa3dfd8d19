"""The difference that each kind of schema change makes to an article, row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tranrepl.model.article import ArticleNames, PublishedColumn, RegisteredArticle
from tranrepl.model.commands import Method, Propagation
from tranrepl.model.names import TableName
from tranrepl.model.position import Position
from tranrepl.model.schema_change import ColumnAction, ColumnChange, LabelAction
from tranrepl.model.table_definition import DefinedColumn, DefinedType, Generation, TableDefinition, UniqueConstraint
from tranrepl.publisher.postgres.dialect import PostgresDialect
from tranrepl.schema.difference import Change, Stop, difference
from tranrepl.schema.messages import AlteredTable, Rewrite, SeenTransactions, Subject
from tranrepl.schema.redefinition import late_columns, redefined, why_unknown

_INT, _TEXT, _VARCHAR, _OWN = 23, 25, 1043, 20_000
_TYPES = {_INT: "integer", _TEXT: "text", _VARCHAR: "character varying", _OWN: "public.mood"}
_NAME = TableName("public", "t")
_KEY = UniqueConstraint(name="t_pkey", primary=True, immediate=True, partial=False, identity=False, columns=(1,))
_SUBJECTS = {
    "ALTER TABLE": Subject.TABLE,
    "CREATE INDEX": Subject.INDEX,
    "ALTER TYPE": Subject.TYPE,
    "ALTER DOMAIN": Subject.DOMAIN,
}
_COMMITTED = Position((1000).to_bytes(8, "big"))


def _column(ordinal: int, name: str, type_oid: int = _TEXT, **more: object) -> DefinedColumn:
    known = {
        "ordinal": ordinal,
        "name": name,
        "type_oid": type_oid,
        "type_modifier": -1,
        "type_name": _TYPES[type_oid],
        "not_null": ordinal == 1,
        "types": None if type_oid == _OWN else (),
    }
    return DefinedColumn.model_validate({**known, **more})


_ID, _A, _B = _column(1, "id", _INT), _column(2, "a"), _column(3, "b", _INT)


def _table(*columns: DefinedColumn, **more: object) -> TableDefinition:
    known = {"name": _NAME, "replica_identity": "full", "persistence": "permanent", "unique": (_KEY,)}
    return TableDefinition.model_validate({**known, "columns": columns, "holds_from": _COMMITTED, **more})


_BEFORE = _table(_ID, _A, _B)


def _article(
    columns: Sequence[str] | None = None, before: TableDefinition = _BEFORE, row_filter: str | None = None
) -> RegisteredArticle:
    statement = Propagation(Method.STATEMENT)
    published = [it for it in before.columns if columns is None or it.name in columns]
    return RegisteredArticle(
        article_id=7,
        source=_NAME,
        destination=TableName("dest", "t"),
        source_object_id=100,
        columns=tuple(
            PublishedColumn(
                name=it.name,
                ordinal=it.ordinal,
                type_oid=it.type_oid,
                type_modifier=it.type_modifier,
                type_name=it.type_name,
                key_ordinal=1 if it.ordinal == 1 else None,
                earlier_names=("before",) if it.ordinal == 2 else (),
                unique=it.ordinal == 1,
                lob=it.ordinal == 2,
            )
            for it in published
            if it.generation is Generation.NONE
        ),
        ins_cmd=statement,
        upd_cmd=statement,
        del_cmd=statement,
        filter=row_filter,
        source_definition=before,
        file_names=ArticleNames(
            source=_NAME, columns=None if columns is None else tuple(columns), filter=row_filter, lob_columns=("a",)
        ),
    )


def _difference(
    now: TableDefinition,
    *,
    tag: str = "ALTER TABLE",
    columns: Sequence[str] | None = None,
    before: TableDefinition = _BEFORE,
    row_filter: str | None = None,
    rewrite: Rewrite = Rewrite.NONE,
    existing: Mapping[int, str] | None = None,
    untold: frozenset[int] = frozenset(),
) -> Change | Stop:
    altered = AlteredTable(
        100,
        tag,
        now,
        _SUBJECTS.get(tag, Subject.OTHER),
        rewrite=rewrite,
        existing_values=existing or {},
        unread_values=untold,
        collations={12: "pg_catalog.c12"},
    )
    return difference(_article(columns, before, row_filter), altered, PostgresDialect())


def _change(now: TableDefinition, **more: Any) -> Change:
    found = _difference(now, **more)
    assert isinstance(found, Change)
    return found


def _stop(now: TableDefinition, **more: Any) -> str:
    found = _difference(now, **more)
    assert isinstance(found, Stop)
    return found.reason


def _done(change: Change) -> list[str]:
    """Return what is done, in words: action, column and new name."""
    return [" ".join(filter(None, [it.action.value, it.column, it.new_name])) for it in change.columns]


def _names_of(change: Change) -> list[str]:
    return [it.name for it in change.article.columns]


_C = _column(4, "c", _INT)


def test_a_column_is_added_with_the_value_of_its_rows() -> None:
    added = _C.model_copy(update={"default": "5", "collation_oid": 12})
    change = _change(_table(_ID, _A, _B, added), existing={4: "5"})
    assert change.columns == (
        ColumnChange(
            action=ColumnAction.ADD,
            column="c",
            type_name="integer",
            collation="pg_catalog.c12",
            existing_value="5",
            default="5",
        ),
    )
    assert (change.rows_unknown, change.is_new) == (None, True)
    assert _names_of(change) == ["id", "a", "b", "c"]
    assert change.article.columns[1].earlier_names == ()


def test_a_column_added_without_value_has_none() -> None:
    assert _change(_table(_ID, _A, _B, _C)).rows_unknown is None


@pytest.mark.parametrize(
    ("column", "rewrite", "untold"),
    [
        (_C.model_copy(update={"default": "random()"}), Rewrite.DEFAULT, frozenset[int]()),
        (_C.model_copy(update={"is_identity": True}), Rewrite.DEFAULT, frozenset[int]()),
        (_column(4, "c", _OWN), Rewrite.DEFAULT, frozenset[int]()),
        (_C, Rewrite.NONE, frozenset({4})),
    ],
)
def test_a_column_with_values_that_are_not_told_leaves_rows_unknown(
    column: DefinedColumn, rewrite: Rewrite, untold: frozenset[int]
) -> None:
    change = _change(_table(_ID, _A, _B, column), rewrite=rewrite, untold=untold)
    assert change.rows_unknown == "column c was added with values that the log does not have"
    assert change.article.begins_after == _COMMITTED


def test_the_default_of_a_sequence_does_not_travel() -> None:
    column = _C.model_copy(update={"default": "nextval('public.s'::regclass)", "counts": True})
    assert _change(_table(_ID, _A, _B, column), rewrite=Rewrite.DEFAULT).columns[0].default is None


def test_an_article_with_chosen_columns_gains_none() -> None:
    change = _change(_table(_ID, _A, _B, _C), columns=["id", "a"])
    assert (change.columns, change.is_new, change.article.article_id) == ((), False, 7)
    assert change.notes == ("column c is not among the article's columns",)
    assert change.article.source_definition == _table(_ID, _A, _B, _C)


def test_a_generated_column_is_added_but_does_not_travel() -> None:
    column = _C.model_copy(update={"generation": Generation.STORED, "default": "b + 1"})
    change = _change(_table(_ID, _A, _B, column), rewrite=Rewrite.DEFAULT)
    assert change.columns[0].generation_expression == "b + 1"
    assert (_names_of(change), change.rows_unknown) == (["id", "a", "b"], None)
    assert "does not travel" in change.notes[0]


def test_a_published_column_is_dropped_and_another_is_not() -> None:
    assert _done(_change(_table(_ID, _B))) == ["drop a"]
    assert _done(_change(_table(_ID, _A), columns=["id", "a"])) == []


def test_a_dropped_and_added_column_of_one_name_is_another_one() -> None:
    change = _change(_table(_ID, _B, _column(4, "a", _INT)))
    assert _done(change) == ["drop a", "add a"]
    assert [it.ordinal for it in change.article.columns] == [1, 3, 4]


def test_a_renamed_column_is_followed_by_filter_and_large_columns() -> None:
    now = _table(_ID, _column(2, "A b"), _B)
    change = _change(now, row_filter="t.a = 'a' AND b > 1", columns=["id", "a", "b"])
    assert _done(change) == ["rename a A b"]
    assert change.article.filter == "t.\"A b\" = 'a' AND b > 1"
    assert [it.name for it in change.article.columns if it.lob] == ["A b"]


def test_exchanged_names_go_by_way_of_another_one() -> None:
    change = _change(_table(_ID, _column(2, "b"), _column(3, "a", _INT)))
    assert _done(change) == ["rename a tranrepl_2", "rename b a", "rename tranrepl_2 b"]
    assert [(it.ordinal, it.name) for it in change.article.columns] == [(1, "id"), (2, "b"), (3, "a")]


def test_names_that_move_on_are_given_from_the_last_one() -> None:
    assert _done(_change(_table(_ID, _column(2, "b"), _column(3, "c", _INT)))) == ["rename b c", "rename a b"]


@pytest.mark.parametrize("rewrite", [Rewrite.NONE, Rewrite.TYPE])
def test_another_type_leaves_rows_unknown_only_where_they_were_rewritten(rewrite: Rewrite) -> None:
    before = _table(_ID, _A, _column(3, "b", _VARCHAR))
    change = _change(_table(_ID, _A, _column(3, "b", _TEXT)), before=before, rewrite=rewrite)
    assert (_done(change), change.columns[0].type_name) == (["retype b"], "text")
    assert (change.rows_unknown is None) is (rewrite is Rewrite.NONE)


def test_a_number_is_never_another_type_without_a_rewrite() -> None:
    assert _change(_table(_ID, _A, _column(3, "b", _TEXT))).rows_unknown is not None


def test_another_collation_is_a_retype() -> None:
    change = _change(_table(_ID, _A.model_copy(update={"collation_oid": 12}), _B))
    assert change.columns[0].collation == "pg_catalog.c12"


def test_not_null_is_dropped_and_not_set() -> None:
    now = _table(_ID, _A.model_copy(update={"not_null": True}), _B)
    assert _change(now).notes == ("column a is NOT NULL now",)
    assert not _change(now).is_new
    assert _done(_change(_BEFORE, before=now)) == ["drop not null a"]


def test_another_default_is_told() -> None:
    change = _change(_table(_ID, _A.model_copy(update={"default": "'x'"}), _B))
    assert (change.notes, change.is_new) == (("column a has another default",), False)


def test_a_unique_index_lets_updates_go_as_pairs_and_its_drop_changes_nothing() -> None:
    index = UniqueConstraint(name="u", primary=False, immediate=True, partial=False, identity=False, columns=(3,))
    now = _table(_ID, _A, _B, unique=(_KEY, index))
    change = _change(now, tag="CREATE INDEX")
    assert [it.unique for it in change.article.columns] == [True, False, True]
    assert (change.notes, change.is_new) == (("unique index u is not made at the Subscribers",), True)
    again = difference(change.article, AlteredTable(100, "ALTER TABLE", _BEFORE), PostgresDialect())
    assert isinstance(again, Change)
    assert not again.is_new


def test_another_primary_key_leaves_rows_unknown() -> None:
    change = _change(_table(_ID, _A, _B, unique=(_KEY.model_copy(update={"columns": (3, 1)}),)))
    assert change.rows_unknown == "its primary key is another one"
    assert change.article.key_positions == (2, 0)


def test_a_primary_key_that_is_gone_for_a_moment_stays() -> None:
    change = _change(_table(_ID, _A, _B, unique=()))
    assert (change.is_new, change.article.key_positions) == (False, (0,))
    again = difference(change.article, AlteredTable(100, "ALTER TABLE", _BEFORE), PostgresDialect())
    assert isinstance(again, Change)
    assert (again.is_new, again.rows_unknown) == (False, None)


def test_another_replica_identity_is_told() -> None:
    change = _change(_table(_ID, _A, _B, replica_identity="default"))
    assert change.notes == ("its replica identity is default now: old rows in the log lack values",)
    assert not change.is_new


def test_a_table_with_another_name_keeps_its_destination() -> None:
    now = _table(_ID, _A, _B, name=TableName("other", "New"))
    change = _change(now, row_filter="t.b > 1")
    assert (change.article.source, change.article.destination) == (
        TableName("other", "New"),
        TableName("dest", "t"),
    )
    assert change.article.filter == '"New".b > 1'
    assert change.is_new


def _mood(*labels: str) -> DefinedColumn:
    return _column(2, "a", _OWN, types=(DefinedType(oid=_OWN, name="public.mood", labels=labels, form="e"),))


@pytest.mark.parametrize(
    ("labels", "added", "renamed"),
    [
        (("sad", "ok", "happy", "mad"), [("mad", None), ("ok", "happy")], False),
        (("sad", "glad"), [("glad", None)], True),
        (("glad", "happy", "mad"), [("mad", None), ("glad", "happy")], True),
        (("happy", "sad"), [], True),
    ],
)
def test_labels_are_added_and_renamed_ones_reinitialize(
    labels: tuple[str, ...], added: list[tuple[str, str | None]], renamed: bool
) -> None:
    before = _table(_ID, _mood("sad", "happy"), _B)
    change = _change(_table(_ID, _mood(*labels), _B), before=before, tag="ALTER TYPE")
    assert [(it.action, it.label, it.before) for it in change.labels] == [(LabelAction.ADD, *it) for it in added]
    assert change.rows_unknown == ("a label of type public.mood was renamed" if renamed else None)
    assert change.is_new


_WANTED = _article(before=_BEFORE)
_LATER = {"holds_from": Position((2000).to_bytes(8, "big"))}
_OTHER_KEY = _KEY.model_copy(update={"columns": (3,)})
_KEYED = [it.model_copy(update={"key_ordinal": 1 if it.ordinal == 3 else None}) for it in _WANTED.columns]


@pytest.mark.parametrize(
    ("wanted", "why", "actions"),
    [
        ({}, None, []),
        ({"filter": "b > 1"}, "its row filter changed", []),
        ({"destination": TableName("public", "other")}, "its destination was changed to another table", []),
        ({"columns": _WANTED.columns[:2], "source_definition": _table(_ID, _A, **_LATER)}, None, []),
        (
            {"columns": _KEYED, "source_definition": _table(_ID, _A, _B, unique=(_OTHER_KEY,), **_LATER)},
            "its primary key is another one",
            [],
        ),
        (
            {"source_definition": _table(_ID, _A.model_copy(update={"type_oid": _VARCHAR}), _B, **_LATER)},
            None,
            [ColumnAction.RETYPE],
        ),
    ],
)
def test_a_definition_that_setup_wants_says_which_rows_are_unknown(
    wanted: Mapping[str, object], why: str | None, actions: Sequence[ColumnAction]
) -> None:
    fields = {name: getattr(_WANTED, name) for name in RegisteredArticle.model_fields}
    new = redefined(_WANTED, RegisteredArticle.model_validate({**fields, "article_id": 0, **wanted}))
    assert new is not None
    assert new.article_id == _WANTED.article_id
    assert why_unknown(_WANTED, new, follows=True) == why
    assert [it.action for it in late_columns(_WANTED, new, {})] == actions


def test_a_table_that_was_altered_after_setup_had_looked_at_it_keeps_its_definition() -> None:
    article = _article(before=_table(_ID, _A, _B, _column(4, "c"), **_LATER))
    assert redefined(article, _WANTED) is None
    renamed = _article(before=_table(_ID, _A, _B, name=TableName("public", "other"), **_LATER))
    assert redefined(renamed, _WANTED) is None
    same = redefined(_article(before=_table(_ID, _A, _B, **_LATER)), _WANTED)
    assert same is not None
    assert same.source_definition == _table(_ID, _A, _B, **_LATER)


def test_a_renamed_type_is_told() -> None:
    before = _table(_ID, _mood("sad"), _B)
    now = _table(_ID, _mood("sad").model_copy(update={"type_name": "public.temper"}), _B)
    change = _change(now, before=before, tag="ALTER TYPE")
    assert change.notes == ("the type of column a is called public.temper now",)


def test_defaults_that_are_not_told_stay_as_they_were() -> None:
    before = _table(_ID, _A.model_copy(update={"default": "'x'"}), _B)
    altered = AlteredTable(100, "ALTER TYPE", _BEFORE, Subject.TYPE, is_locked=False)
    change = difference(_article(before=before), altered, PostgresDialect())
    assert isinstance(change, Change)
    assert (change.notes, change.article.source_definition) == ((), before)


_PAIRS = [_column(2, "a", _OWN, types=(DefinedType(oid=_OWN, name="public.pair", form=it),)) for it in ("two", "three")]
_MOODS = [_table(_ID, _mood(*it), _B) for it in (("sad", "happy"), ("blue", "happy"))]
_UNKNOWN_TYPE = _table(_ID, _column(2, "a", _OWN), _B)
_INSIDE = "the type of column a, or one that it is made of, was altered"
_OF_KEY = _KEY.model_copy(update={"columns": (3,)})


@pytest.mark.parametrize(
    ("now", "more", "reason"),
    [
        (_table(_A, _B, unique=()), {}, "column id of its primary key was dropped"),
        (
            _table(_ID, _A, _B, unique=(_OF_KEY,)),
            {"columns": ["id", "a"]},
            "column b of its new primary key is not among the article's columns",
        ),
        (_table(_ID, _A), {"row_filter": "b > 1"}, "column b was dropped, which its row filter reads: b > 1"),
        (
            _table(_ID, _A, _B, _column(4, "evil", type_name="int; create table pwned(); --")),
            {},
            "column evil is of type int; create table pwned(); --, which is not read",
        ),
        (
            _MOODS[1],
            {"before": _MOODS[0], "tag": "ALTER TYPE", "row_filter": "b > 1 AND a <> 'glad'"},
            "a label of type public.mood was renamed, whose values its row filter reads: b > 1 AND a <> 'glad'",
        ),
        (
            _table(_ID, _A, _B, unique=(_KEY, _OF_KEY.model_copy(update={"primary": False, "immediate": False}))),
            {},
            "its primary key or a unique constraint is DEFERRABLE: within a transaction, two rows may hold one value",
        ),
        (_table(_ID, _PAIRS[1], _B), {"before": _table(_ID, _PAIRS[0], _B), "tag": "ALTER TYPE"}, _INSIDE),
        (
            _table(_ID, _column(2, "a", _OWN), _B),
            {"before": _table(_ID, _column(2, "a", _OWN), _B), "tag": "ALTER TYPE"},
            _INSIDE,
        ),
        (
            _table(_ID, _column(2, "a", _OWN), _B),
            {"before": _table(_ID, _column(2, "a", _OWN), _B), "tag": "ALTER DOMAIN"},
            _INSIDE,
        ),
    ],
)
def test_what_cannot_be_followed_stops(now: TableDefinition, more: dict[str, Any], reason: str) -> None:
    assert _stop(now, **more) == reason


@pytest.mark.parametrize(
    ("now", "more"),
    [
        (_MOODS[1], {"before": _MOODS[0], "tag": "ALTER TYPE", "row_filter": "b > 1"}),
        (_table(_ID, _PAIRS[0], _B), {"before": _table(_ID, _PAIRS[0], _B), "tag": "ALTER TYPE"}),
        (_UNKNOWN_TYPE, {"before": _UNKNOWN_TYPE, "tag": "ALTER TYPE", "columns": ["id", "b"]}),
    ],
)
def test_what_the_article_does_not_depend_on_does_not_stop(now: TableDefinition, more: dict[str, Any]) -> None:
    _change(now, **more)


@pytest.mark.parametrize(("before", "tag"), [(740, "ALTER TABLE"), (744, "ALTER TABLE"), (743, "ALTER TYPE")])
def test_a_transaction_that_sees_the_last_change_is_followed(before: int, tag: str) -> None:
    assert isinstance(_by_transaction(before, tag), Change)


@pytest.mark.parametrize("before", [743, 746])
def test_a_transaction_that_does_not_see_the_last_change_stops(before: int) -> None:
    stop = _by_transaction(before, "ALTER TABLE")
    assert isinstance(stop, Stop)
    assert "at REPEATABLE READ or SERIALIZABLE, began before the table's last change" in stop.reason


def _by_transaction(altered_by: int, tag: str) -> Change | Stop:
    """Return the difference that transaction 744 makes, beside which 743 was open, to a table altered by another."""
    now = _table(_ID, _A, _B, _C, altered_by=744)
    seen = SeenTransactions(745, frozenset({743}))
    locked = tag == "ALTER TABLE"
    altered = AlteredTable(100, tag, now, _SUBJECTS[tag], is_locked=locked, seen=seen, transaction=744)
    return difference(_article(before=_table(_ID, _A, _B, altered_by=altered_by)), altered, PostgresDialect())
