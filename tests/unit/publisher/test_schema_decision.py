"""What becomes of an article for each kind of schema change: the table of decisions, row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tranrepl.model.article import ArticleNames, PublishedColumn, RegisteredArticle
from tranrepl.model.commands import Method, Propagation
from tranrepl.model.names import TableName
from tranrepl.model.position import Position
from tranrepl.model.schema_change import ColumnAction, ColumnChange, LabelAction
from tranrepl.model.table_definition import DefinedColumn, DefinedType, Generation, TableDefinition, UniqueConstraint
from tranrepl.publisher.announcements import Rewrite, TableAnnouncement
from tranrepl.publisher.postgres.filter_names import names_label, renamed_filter
from tranrepl.publisher.postgres.row_filters import filter_columns
from tranrepl.publisher.schema_decision import Decision, decide, renamed_since
from tranrepl.publisher.schema_stop import SchemaStop

_INT, _TEXT, _VARCHAR, _OWN = 23, 25, 1043, 20_000
_TYPES = {_INT: "integer", _TEXT: "text", _VARCHAR: "character varying", _OWN: "public.mood"}
_NAME = TableName("public", "t")
_KEY = UniqueConstraint(name="t_pkey", primary=True, immediate=True, partial=False, identity=False, columns=(1,))
_COMMITTED = Position((1000).to_bytes(8, "big"))


class _Names:
    def collation(self, oid: int) -> str | None:
        return f"pg_catalog.c{oid}"

    def filter_columns(self, text: str, table: str) -> tuple[str, ...]:
        return filter_columns(text, table)

    def renamed_filter(self, text: str, table: TableName, now: TableName, columns: Mapping[str, str]) -> str:
        return renamed_filter(text, table, now, columns)

    def names_label(self, text: str, label: str) -> bool:
        return names_label(text, label)


def _column(ordinal: int, name: str, type_oid: int = _TEXT, **more: object) -> DefinedColumn:
    known = {
        "ordinal": ordinal,
        "name": name,
        "type_oid": type_oid,
        "type_modifier": -1,
        "type_name": _TYPES[type_oid],
        "not_null": ordinal == 1,
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
        definition=before,
        file_names=ArticleNames(
            source=_NAME, columns=None if columns is None else tuple(columns), filter=row_filter, lob_columns=("a",)
        ),
    )


def _decided(
    now: TableDefinition,
    *,
    tag: str = "ALTER TABLE",
    columns: Sequence[str] | None = None,
    before: TableDefinition = _BEFORE,
    row_filter: str | None = None,
    rewrite: Rewrite = Rewrite.NONE,
    existing: Mapping[int, str] | None = None,
    untold: frozenset[int] = frozenset(),
) -> Decision:
    announced = TableAnnouncement(100, tag, now, rewrite=rewrite, existing_values=existing or {}, untold_values=untold)
    return decide(_article(columns, before, row_filter), before, announced, _Names())


def _done(decision: Decision) -> list[str]:
    """Return what is done, in words: action, column and new name."""
    return [" ".join(filter(None, [it.action.value, it.column, it.new_name])) for it in decision.columns]


def _names_of(decision: Decision) -> list[str]:
    return [it.name for it in decision.article.columns]


_C = _column(4, "c", _INT)


def test_a_column_is_added_with_the_value_of_its_rows() -> None:
    added = _C.model_copy(update={"default": "5", "collation_oid": 12})
    decision = _decided(_table(_ID, _A, _B, added), existing={4: "5"})
    assert decision.columns == (
        ColumnChange(
            action=ColumnAction.ADD,
            column="c",
            type_name="integer",
            collation="pg_catalog.c12",
            existing_value="5",
            default="5",
        ),
    )
    assert (decision.rows_unknown, decision.is_new) == (None, True)
    assert _names_of(decision) == ["id", "a", "b", "c"]
    assert decision.article.columns[1].earlier_names == ()


def test_a_column_added_without_value_has_none() -> None:
    assert _decided(_table(_ID, _A, _B, _C)).rows_unknown is None


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
    decision = _decided(_table(_ID, _A, _B, column), rewrite=rewrite, untold=untold)
    assert decision.rows_unknown == "column c was added with values that the log does not have"
    assert decision.article.begins_after == _COMMITTED


def test_the_default_of_a_sequence_does_not_travel() -> None:
    column = _C.model_copy(update={"default": "nextval('public.s'::regclass)"})
    assert _decided(_table(_ID, _A, _B, column), rewrite=Rewrite.DEFAULT).columns[0].default is None


def test_an_article_with_chosen_columns_gains_none() -> None:
    decision = _decided(_table(_ID, _A, _B, _C), columns=["id", "a"])
    assert (decision.columns, decision.is_new, decision.article.article_id) == ((), False, 7)
    assert decision.notes == ("column c is not among the article's columns",)
    assert decision.article.definition == _table(_ID, _A, _B, _C)


def test_a_generated_column_is_added_but_does_not_travel() -> None:
    column = _C.model_copy(update={"generation": Generation.STORED, "default": "b + 1"})
    decision = _decided(_table(_ID, _A, _B, column), rewrite=Rewrite.DEFAULT)
    assert decision.columns[0].generation_expression == "b + 1"
    assert (_names_of(decision), decision.rows_unknown) == (["id", "a", "b"], None)
    assert "does not travel" in decision.notes[0]


def test_a_published_column_is_dropped_and_another_is_not() -> None:
    assert _done(_decided(_table(_ID, _B))) == ["drop a"]
    assert _done(_decided(_table(_ID, _A), columns=["id", "a"])) == []


def test_a_dropped_column_of_the_key_stops() -> None:
    with pytest.raises(SchemaStop, match="column id of its primary key was dropped"):
        _decided(_table(_A, _B, unique=()))


def test_a_type_that_is_none_stops() -> None:
    forged = _column(4, "evil", type_name="int; create table pwned(); --")
    with pytest.raises(SchemaStop, match="column evil is of type int; create table pwned"):
        _decided(_table(_ID, _A, _B, forged))


def test_a_dropped_column_of_the_filter_stops() -> None:
    with pytest.raises(SchemaStop, match="column b was dropped, which its row filter reads: b > 1"):
        _decided(_table(_ID, _A), row_filter="b > 1")


def test_a_dropped_and_added_column_of_one_name_is_another_one() -> None:
    decision = _decided(_table(_ID, _B, _column(4, "a", _INT)))
    assert _done(decision) == ["drop a", "add a"]
    assert [it.ordinal for it in decision.article.columns] == [1, 3, 4]


def test_a_renamed_column_is_followed_by_filter_and_large_columns() -> None:
    now = _table(_ID, _column(2, "A b"), _B)
    decision = _decided(now, row_filter="t.a = 'a' AND b > 1", columns=["id", "a", "b"])
    assert _done(decision) == ["rename a A b"]
    assert decision.article.filter == "t.\"A b\" = 'a' AND b > 1"
    assert [it.name for it in decision.article.columns if it.lob] == ["A b"]


def test_exchanged_names_go_by_way_of_another_one() -> None:
    decision = _decided(_table(_ID, _column(2, "b"), _column(3, "a", _INT)))
    assert _done(decision) == ["rename a tranrepl_2", "rename b a", "rename tranrepl_2 b"]
    assert [(it.ordinal, it.name) for it in decision.article.columns] == [(1, "id"), (2, "b"), (3, "a")]


def test_names_that_move_on_are_given_from_the_last_one() -> None:
    assert _done(_decided(_table(_ID, _column(2, "b"), _column(3, "c", _INT)))) == ["rename b c", "rename a b"]


@pytest.mark.parametrize("rewrite", [Rewrite.NONE, Rewrite.TYPE])
def test_another_type_leaves_rows_unknown_only_where_they_were_rewritten(rewrite: Rewrite) -> None:
    before = _table(_ID, _A, _column(3, "b", _VARCHAR))
    decision = _decided(_table(_ID, _A, _column(3, "b", _TEXT)), before=before, rewrite=rewrite)
    assert (_done(decision), decision.columns[0].type_name) == (["retype b"], "text")
    assert (decision.rows_unknown is None) is (rewrite is Rewrite.NONE)


def test_a_number_is_never_another_type_without_a_rewrite() -> None:
    assert _decided(_table(_ID, _A, _column(3, "b", _TEXT))).rows_unknown is not None


def test_another_collation_is_a_retype() -> None:
    decision = _decided(_table(_ID, _A.model_copy(update={"collation_oid": 12}), _B))
    assert decision.columns[0].collation == "pg_catalog.c12"


def test_not_null_is_dropped_and_not_set() -> None:
    now = _table(_ID, _A.model_copy(update={"not_null": True}), _B)
    assert _decided(now).notes == ("column a is NOT NULL now",)
    assert not _decided(now).is_new
    assert _done(_decided(_BEFORE, before=now)) == ["drop not null a"]


def test_another_default_is_told() -> None:
    decision = _decided(_table(_ID, _A.model_copy(update={"default": "'x'"}), _B))
    assert (decision.notes, decision.is_new) == (("column a has another default",), False)


def test_a_unique_index_lets_updates_go_as_pairs_and_its_drop_changes_nothing() -> None:
    index = UniqueConstraint(name="u", primary=False, immediate=True, partial=False, identity=False, columns=(3,))
    now = _table(_ID, _A, _B, unique=(_KEY, index))
    decision = _decided(now, tag="CREATE INDEX")
    assert [it.unique for it in decision.article.columns] == [True, False, True]
    assert (decision.notes, decision.is_new) == (("unique index u is not made at the Subscribers",), True)
    again = TableAnnouncement(100, "ALTER TABLE", _BEFORE)
    assert not decide(decision.article, now, again, _Names()).is_new


def test_another_primary_key_leaves_rows_unknown() -> None:
    decision = _decided(_table(_ID, _A, _B, unique=(_KEY.model_copy(update={"columns": (3, 1)}),)))
    assert decision.rows_unknown == "its primary key is another one"
    assert decision.article.key_positions == (2, 0)


def test_a_key_beyond_the_chosen_columns_stops() -> None:
    with pytest.raises(SchemaStop, match="column b of its new primary key is not among the article's columns"):
        _decided(_table(_ID, _A, _B, unique=(_KEY.model_copy(update={"columns": (3,)}),)), columns=["id", "a"])


def test_a_primary_key_that_is_gone_for_a_moment_stays() -> None:
    decision = _decided(_table(_ID, _A, _B, unique=()))
    assert (decision.is_new, decision.article.key_positions) == (False, (0,))
    again = decide(
        decision.article, _table(_ID, _A, _B, unique=()), TableAnnouncement(100, "ALTER TABLE", _BEFORE), _Names()
    )
    assert (again.is_new, again.rows_unknown) == (False, None)


def test_another_replica_identity_is_told() -> None:
    decision = _decided(_table(_ID, _A, _B, replica_identity="default"))
    assert decision.notes == ("its replica identity is default now: old rows in the log lack values",)
    assert not decision.is_new


def test_a_table_with_another_name_keeps_its_destination() -> None:
    now = _table(_ID, _A, _B, name=TableName("other", "New"))
    decision = _decided(now, row_filter="t.b > 1")
    assert (decision.article.source, decision.article.destination) == (
        TableName("other", "New"),
        TableName("dest", "t"),
    )
    assert decision.article.filter == '"New".b > 1'
    assert decision.is_new


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
    decision = _decided(_table(_ID, _mood(*labels), _B), before=before, tag="ALTER TYPE")
    assert [(it.action, it.label, it.before) for it in decision.labels] == [(LabelAction.ADD, *it) for it in added]
    assert decision.rows_unknown == ("a label of type public.mood was renamed" if renamed else None)
    assert decision.is_new


@pytest.mark.parametrize(
    ("condition", "named"),
    [
        ("a = 'sad'", True),
        ("a = ANY ('{happy,sad}')", True),
        ("a = E's\\x61d'", True),
        ("a = 'happy'", False),
        ("b > 1 AND a <> 'saddest'", False),
    ],
)
def test_a_renamed_label_that_a_filter_names_stops(condition: str, named: bool) -> None:
    before, now = (_table(_ID, _mood(*it), _B) for it in (("sad", "happy"), ("blue", "happy")))
    if not named:
        assert _decided(now, before=before, tag="ALTER TYPE", row_filter=condition).rows_unknown is not None
        return
    with pytest.raises(SchemaStop, match=r"label 'sad' of type public\.mood was renamed, which its row filter names"):
        _decided(now, before=before, tag="ALTER TYPE", row_filter=condition)


def test_a_renamed_label_before_what_setup_found_reinitializes_where_it_has_another_name_there() -> None:
    found = _table(_ID, _mood("sad", "happy"), _B)
    article = _article(before=found)
    for labels, unknown in ((("blue", "happy"), True), (("sad",), False), (("sad", "happy"), False)):
        announced = TableAnnouncement(100, "ALTER TYPE", _table(_ID, _mood(*labels), _B))
        decision = renamed_since(article, found, announced)
        assert (decision is not None and decision.rows_unknown is not None) is unknown
        reinitialized = article.model_copy(update={"begins_after": _COMMITTED})
        assert renamed_since(reinitialized, found, announced) is None


def test_what_a_type_is_made_of_stops_where_values_change() -> None:
    forms = [DefinedType(oid=_OWN, name="public.pair", form=it) for it in ("two", "three")]
    before, now = (_table(_ID, _column(2, "a", _OWN, types=(it,)), _B) for it in forms)
    with pytest.raises(SchemaStop, match="the type of column a, or one that it is made of, was altered"):
        _decided(now, before=before, tag="ALTER TYPE")
    assert not _decided(before, before=before, tag="ALTER TYPE").is_new


@pytest.mark.parametrize("tag", ["ALTER DOMAIN", "ALTER TYPE"])
def test_a_domain_or_composite_type_stops(tag: str) -> None:
    before = _table(_ID, _column(2, "a", _OWN), _B)
    with pytest.raises(SchemaStop, match="the type of column a, or one that it is made of, was altered"):
        _decided(before, before=before, tag=tag)
    assert not _decided(before, before=before, tag=tag, columns=["id", "b"]).is_new


def test_a_renamed_type_is_told() -> None:
    before = _table(_ID, _mood("sad"), _B)
    now = _table(_ID, _mood("sad").model_copy(update={"type_name": "public.temper"}), _B)
    decision = _decided(now, before=before, tag="ALTER TYPE")
    assert decision.notes == ("the type of column a is called public.temper now",)


def test_defaults_that_are_not_told_stay_as_they_were() -> None:
    before = _table(_ID, _A.model_copy(update={"default": "'x'"}), _B)
    announced = TableAnnouncement(100, "ALTER TYPE", _BEFORE, defaults_told=False)
    decision = decide(_article(before=before), before, announced, _Names())
    assert (decision.notes, decision.article.definition) == ((), before)
