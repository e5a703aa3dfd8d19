"""Bulk at SQL Server: what bulk copy must not change, what a table allows, and what an error costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from support.command_history import Column, History, Image
from support.observed import sent_statements
from support.requirements import Requirement, allowing, require
from support.subscribers import KEY, Rows, Site
from tranrepl.jobs.results import JobResult
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.commands import FIRST_XACT_SEQNO, Operation
from tranrepl.settings.publication import Apply, Subscription
from tranrepl.subscriber.applier_options import ApplierOptions
from tranrepl.subscriber.batching.steps import BulkStep
from tranrepl.subscriber.mssql.bulk import SqlServerBulk
from tranrepl.subscriber.registry import dialect_of

MakeSite = Callable[[str], Site]
INS, UPD, DEL = Operation.INSERT, Operation.UPDATE, Operation.DELETE
ALL: frozenset[Operation] = frozenset({INS, UPD, DEL})
NOTHING: frozenset[Operation] = frozenset()
ITEM = [Column("id", "integer", key=1), Column("note", "text"), Column("amount", "integer")]


@pytest.fixture(params=["mssql procedures", "mssql statements"])
def site(request: pytest.FixtureRequest, make_site: MakeSite) -> Site:
    return make_site(request.param)


@pytest.fixture
def by_statements(make_site: MakeSite) -> Site:
    return make_site("mssql statements")


def _bulk_operations(site: Site) -> dict[int, frozenset[Operation]]:
    with dialect_of(site.connection).applier(site.connection, KEY, site.articles) as applier:
        return dict(applier.bulk_operations)


def _deliver(site: Site, history: History, apply: Apply, *before: str) -> JobResult:
    site.execute(f"update msreplication_subscriptions set transaction_timestamp = 0x{FIRST_XACT_SEQNO.hex()}", *before)
    return site.deliver(history, options=ApplierOptions(apply=apply))


# A published type, the values that it may have, and how they are shown so that nothing of them is lost.
_EXACT: Mapping[str, tuple[Sequence[str | None], str]] = {
    "character varying(10)": (
        ["", " ", "x  ", "é\U0001f600\U0001f600\U0001f600", "a\\b\nc\td\r", "'%s'%%", None, "0123456789"],
        "convert(varbinary(max), {})",
    ),
    "text": (["", "  ", "é" * 5000, "\U0001f600" * 4001, "\\\n\\\\N", None, "x" * 9000], "convert(varbinary(max), {})"),
    "character(5)": (["ab   ", "     ", "é    ", None, "abcde"], "{}"),
    "bytea": (["\\x", "\\x00", "\\x20", "\\x" + "00ff" * 10_000, None], "{}"),
    "numeric(38,15)": (
        ["12345678901234567890123.123456789012345", "-0.000000000000001", "0", "1.50", None],
        "convert(varchar(60), {})",
    ),
    "numeric(10,2)": (["99999999.99", "-0.01", "5", None], "{}"),
    "money": (["$1,234.50", "-$0.01", None], "{}"),
    "real": (["0.1", "3.4028235e+38", "1e-30", "-1.5", None], "{}"),
    "double precision": (["0.1", "1.7976931348623157e+308", "2.2250738585072014e-308", "123456789.125", None], "{}"),
    "smallint": (["-32768", "32767", None], "{}"),
    "integer": (["-2147483648", "2147483647", None], "{}"),
    "bigint": (["-9223372036854775808", "9223372036854775807", "0", None], "{}"),
    "boolean": (["t", "f", None], "{}"),
    "date": (["0001-01-01", "9999-12-31", "2024-02-29", None], "{}"),
    "time without time zone": (["00:00:00", "23:59:59.999999", "12:00:00.5", None], "convert(varchar(30), {})"),
    "timestamp without time zone": (
        ["0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "2024-01-01 12:00:00.5", None],
        "convert(varchar(40), {}, 121)",
    ),
    "timestamp with time zone": (
        ["0001-01-01 00:00:00+00", "9999-12-31 23:59:59.999999+00", "2024-06-01 12:00:00.25+00", None],
        "convert(varchar(50), {}, 121)",
    ),
    "uuid": (["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "00000000-0000-0000-0000-000000000000", None], "{}"),
}


def _images(article: RegisteredArticle) -> list[Image]:
    """Return as many rows as the longest list of values needs; shorter ones begin again."""
    rows = max(len(values) for values, _ in _EXACT.values())
    columns = [values for values, _ in _EXACT.values()]
    return [[str(row), *(values[row % len(values)] for values in columns)] for row in range(rows)]


def test_bulk_copy_changes_no_value(by_statements: Site) -> None:
    """Keep empty apart from NULL, blanks at the end, and every digit, byte and letter."""
    site = by_statements
    columns = [Column("id", "integer", key=1), *(Column(f"c{at}", name) for at, name in enumerate(_EXACT))]
    article = site.article("exact", columns)
    images = _images(article)
    shown = ", ".join(f"{how.format(f'c{at}')} as c{at}" for at, (_, how) in enumerate(_EXACT.values()))
    inserted, updated = History(), History()
    for row, image in enumerate(images):
        inserted.insert(article, image)
        updated.update(article, [str(row), *[None] * len(_EXACT)], image)
    rows: list[Rows] = []
    for apply in (Apply.SERIAL, Apply.AUTO):
        for history, before in ((inserted, "select 1"), (updated, _inserts(len(images)))):
            result = _deliver(site, history, apply, "delete from exact", before)
            assert (result.error, result.fallbacks) == (None, {})
            assert result.in_bulk == (len(images) if apply is Apply.AUTO else 0)
            rows.append(site.execute(f"select id, {shown} from exact order by id"))
    for at, name in enumerate(["id", *_EXACT]):
        of_column = [[row[at] for row in it] for it in rows]
        assert [name, *of_column[1:]] == [name, *of_column[:-1]]


def _inserts(rows: int) -> str:
    return f"insert into exact (id) values {', '.join(f'({row})' for row in range(rows))}"


_KEYS: Mapping[str, tuple[str, ...]] = {
    "character varying(20)": ("", " x", "\u00e9\U0001f600", "a'b", "A", "a"),
    "bytea": ("\\x", "\\x01", "\\x0102"),
    "numeric(10,2)": ("0.00", "-1.50", "99999999.99"),
    "timestamp without time zone": ("0001-01-01 00:00:00", "2024-01-01 12:00:00.5"),
    "timestamp with time zone": ("2024-01-01 12:00:00.5+00", "2024-01-01 12:00:00+00"),
    "uuid": ("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "00000000-0000-0000-0000-000000000000"),
    "double precision": ("0.1", "-2.5"),
    "boolean": ("t", "f"),
}


def test_rows_are_met_by_keys_of_any_type_in_bulk(by_statements: Site) -> None:
    site = by_statements
    for at, (name, keys) in enumerate(_KEYS.items()):
        site.articles.clear()
        article = site.article(f"keyed{at}", [Column("id", name, key=1), Column("value", "integer")])
        history = History()
        for key in keys:
            history.insert(article, [key, "1"])
        history.transaction()
        first = _deliver(site, history, Apply.AUTO)
        changes = History()
        changes.delete(article, [keys[0], "1"])
        for key in keys[1:]:
            changes.update(article, [key, "1"], [key, "2"])
        second = _deliver(site, changes, Apply.AUTO)
        assert (name, first.error, second.error) == (name, None, None)
        assert (name, first.in_bulk, second.in_bulk) == (name, len(keys), len(keys))
        assert site.rows(f"keyed{at}", "value") == [(2,)] * (len(keys) - 1)


_TABLE = "create table {{0}} (id int primary key, note nvarchar(max), amount int{0})"


def _table(more: str = "") -> str:
    return _TABLE.format(more)


def _trigger(when: str) -> str:
    return f"create trigger on_{{0}} on {{0}} {when} as update other set id = id"


def _child(action: str) -> str:
    return f"create table child_of_{{0}} (item int references {{0}} (id) {action})"


# Statements that make the table {0}, then what of it may go in bulk.
_DECLARED: list[tuple[Sequence[str], frozenset[Operation]]] = [
    ([_table()], ALL),
    ([_table(", a int default 5, b datetime2 default sysdatetime(), c varchar(9) default 'it''s', d int null")], ALL),
    ([_table(", twice as (amount * 2)")], ALL),
    ([_table(", own int identity")], ALL - {INS}),
    ([_table(", own uniqueidentifier default newid()")], ALL - {INS}),
    ([_table(", own float default rand()")], ALL - {INS}),
    (["create table {0} (id int, note nvarchar(max), amount int)"], NOTHING),
    (["create table {0} (id int, note nvarchar(max), amount int, unique (id, amount))"], NOTHING),
    (["create table {0} (id int unique, note xml, amount int)"], NOTHING),
    ([_table(), _trigger("after insert")], ALL - {INS}),
    ([_table(), _trigger("after update")], ALL - {UPD}),
    ([_table(), _trigger("instead of delete")], ALL - {DEL}),
    ([_table(), _trigger("after insert, delete")], frozenset({UPD})),
    ([_table(), _child("on delete cascade")], frozenset({INS})),
    ([_table(), _child("on update set null")], frozenset({INS})),
    ([_table(), _child("")], ALL),
    ([_table(", own rowversion")], frozenset({DEL})),
]


def test_what_a_table_lets_go_in_bulk_at_sql_server(by_statements: Site) -> None:
    site, expected = by_statements, dict[int, frozenset[Operation]]()
    site.execute("create table other (id int)")
    for at, (statements, allowed) in enumerate(_DECLARED):
        site.execute(*allowing(site.connection), *(it.format(f"t{at}") for it in statements))
        article = site.article(f"t{at}", ITEM)
        expected |= {article.article_id: allowed} if allowed else {}
    assert _bulk_operations(site) == expected


_DECLARED_THERE: list[tuple[Requirement, Sequence[str]]] = [
    (
        Requirement.FILTERED_INDEXES,
        [
            "create table {0} (id int not null, note nvarchar(max), amount int)",
            "create unique index some_rows on {0} (id) where amount > 0",
        ],
    ),
    (
        Requirement.TEMPORAL_TABLES,
        [
            _table(
                ", since datetime2 generated always as row start not null, "
                "until datetime2 generated always as row end not null, period for system_time (since, until)) "
                "with (system_versioning = on"
            )
        ],
    ),
]


@pytest.mark.parametrize(("requirement", "statements"), _DECLARED_THERE, ids=lambda it: getattr(it, "name", ""))
def test_a_table_without_a_whole_key_or_with_a_history_goes_serially(
    by_statements: Site, requirement: Requirement, statements: Sequence[str]
) -> None:
    require(by_statements.connection, requirement)
    by_statements.execute(*(it.format("kept") for it in statements))
    by_statements.article("kept", ITEM)
    assert _bulk_operations(by_statements) == {}


def test_a_t_sql_procedure_that_was_edited_is_called(make_site: MakeSite) -> None:
    site = make_site("mssql procedures")
    item = site.article("item", ITEM)
    assert _bulk_operations(site) == {item.article_id: ALL}
    ((text,),) = site.execute("select object_definition(object_id('dbo.sp_MSins_dboitem'))")
    edited = text.replace("begin\n", "begin\ninsert into trail values (@c1)\n", 1)
    site.execute("create table trail (id int)", "drop procedure dbo.sp_MSins_dboitem", edited)
    assert _bulk_operations(site) == {item.article_id: {UPD, DEL}}
    history = History().insert(item, ["1", "a", "1"]).update(item, ["1", "a", "1"], ["1", "b", "2"])
    result = _deliver(site, history, Apply.AUTO)
    assert (result.error, result.in_bulk, site.rows("trail")) == (None, 1, [(1,)])
    assert site.rows("item") == [(1, "b", 2)]


def test_children_go_before_parents_at_sql_server(by_statements: Site) -> None:
    site = by_statements
    line = site.article("line", [Column("id", "integer", key=1), Column("item", "integer")])
    item = site.article("item", ITEM)
    site.execute("alter table line add foreign key (item) references item (id)")
    before = ("delete from line", "delete from item", "insert into item values (2, 'two', 2)")
    history = History().insert(item, ["1", "one", "1"]).update(line, ["1", "2"], ["1", "1"]).insert(line, ["2", "1"])
    history.transaction().delete(line, ["1", "1"]).delete(item, ["2", "two", "2"])
    result = _deliver(site, history, Apply.AUTO, *before, "insert into line values (1, 2)")
    assert (result.error, result.in_bulk, result.fallbacks) == (None, 5, {})
    assert (site.rows("line"), site.rows("item")) == ([(2, 1)], [(1, "one", 1)])


def test_a_cascade_of_sql_servers_deletes_rows_that_commands_miss(by_statements: Site) -> None:
    site = by_statements
    item = site.article("item", ITEM)
    site.execute("create table line (id int primary key, item int references item (id) on delete cascade)")
    line = site.article("line", [Column("id", "integer", key=1), Column("item", "integer")])
    history = History().insert(item, ["1", None, "5"]).insert(line, ["7", "1"])
    site.deliver(history.transaction().delete(item, ["1", None, "5"])).raise_error()
    assert (site.rows("item"), site.rows("line")) == ([], [])
    error = site.deliver(History(xact=2).transaction().delete(line, ["7", "1"]), site.watermark()).error
    assert error is not None
    assert (error.number, error.article, error.key) == ("20598", "public.line", "id = 7")


# An error that ends the whole transaction, with its savepoints: a check that converts what is no number.
_CONVERTS = "alter table item add check (convert(int, note) > 0)"


def test_an_error_that_ends_the_transaction_names_its_command(site: Site) -> None:
    item = site.article("item", ITEM)
    other = site.article("other", ITEM)
    site.execute(_CONVERTS)
    history = History()
    for at in range(1, 30):
        history.insert(other, [str(at), "free", None])
    history.insert(item, ["1", "1", None]).insert(item, ["2", "none", None]).insert(item, ["3", "3", None])
    for apply in (Apply.SERIAL, Apply.AUTO):
        result = _deliver(site, history, apply, "delete from item", "delete from other")
        assert result.error is not None
        assert (result.error.command_id, result.error.key) == (31, "id = 2")
        assert (result.in_bulk, site.rows("item"), site.rows("other")) == (0, [], [])
        assert site.watermark() == FIRST_XACT_SEQNO


def test_what_an_ended_transaction_had_applied_is_applied_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    # Before the step in bulk that ends it, commands went serially, one of which was skipped.
    item, watched = site.article("item", ITEM), site.article("watched", ITEM)
    site.execute(
        "create table seen (id int)",
        "insert into watched values (2, 'there', 0)",
        "create trigger on_watched on watched after insert as insert into seen select id from inserted",
        "insert into item values (1, 'a', 1), (2, 'b', 2)",
    )
    history = History()
    for at in (1, 2, 3):
        history.insert(watched, [str(at), "new", None])
    for at, note in ((1, "a"), (2, "b")):
        history.update(item, [str(at), note, str(at)], [str(at), "changed", str(at)])
    monkeypatch.setattr(SqlServerBulk, "apply", _fail)
    site.chunk = 100
    result = site.deliver(history, options=ApplierOptions(skip_errors=frozenset({"2627"})))
    assert (result.error, result.in_bulk, result.skipped, len(result.fallbacks)) == (None, 0, 1, 1)
    assert sorted(site.rows("seen")) == [(1,), (3,)]
    assert site.rows("item") == [(1, "changed", 1), (2, "changed", 2)]
    assert [it[0] for it in site.rows("watched")] == [1, 2, 3]


def _fail(bulk: SqlServerBulk, step: BulkStep) -> None:
    """Raise an error of the server's that ends the transaction with its savepoints."""
    del step
    bulk.execute("select convert(int, N'none')")


def test_the_failing_one_of_many_statements_is_known(site: Site) -> None:
    # They travel together, whatever their shapes; the one that fails is named, and the others can be kept.
    item = site.article("item", ITEM)
    history = History()
    for at in range(1, 120):
        history.insert(item, [str(at), "new", None])
        if at % 3 == 0:
            history.update(item, [str(at), "new", None], [str(at), "changed", None])
    history.update(item, ["777", "gone", None], ["777", "lost", None]).insert(item, ["5", "twice", None])
    history.delete(item, ["3", "changed", None])
    result = _deliver(site, history, Apply.SERIAL)
    assert result.error is not None
    assert (result.error.number, result.error.key) == ("20598", "id = 777")
    skipping = ApplierOptions(apply=Apply.SERIAL, skip_errors=frozenset({"20598", "2627"}))
    result = site.deliver(history, options=skipping)
    assert (result.error, [it.key for it in result.first_skipped]) == (None, ["id = 777", "id = 5"])
    expected = [(at, "changed" if at % 3 == 0 else "new", None) for at in range(1, 120) if at != 3]
    assert site.rows("item") == expected


def test_commands_that_go_serially_share_round_trips(site: Site) -> None:
    item, site.chunk = site.article("item", ITEM), 1000

    def round_trips(first: int, count: int) -> int:
        history = History(xact=first)
        for at in range(first, first + count):
            history.insert(item, [str(at), "new", None])
        with sent_statements("mssql") as sent:
            _deliver(site, history, Apply.SERIAL).raise_error()
        return len(sent)

    one, many = round_trips(1, 1), round_trips(1000, 400)
    assert many < one + 10
    assert len(site.rows("item")) == 401


@pytest.mark.parametrize(
    ("setting", "remedy"),
    [("not_for_replication", "drop or disable what must not act"), ("foreign_keys", "foreign_keys: false")],
)
def test_what_only_an_agents_session_could_do_is_refused(by_statements: Site, setting: str, remedy: str) -> None:
    asked = Subscription.model_validate({"name": "reporting", "connection": "subscriber", setting: True})
    with dialect_of(by_statements.connection).subscriber(by_statements.connection, KEY, "test") as subscriber:
        (problem,) = subscriber.subscription_problems(asked)
    assert f"reporting: {setting}: " in problem.message
    assert "login packet" in problem.message
    assert remedy in str(problem.report.remedy)


def test_what_is_not_for_replication_acts_on_a_delivery(by_statements: Site) -> None:
    # The sessions of a delivery are no replication agent's for the server.
    site = by_statements
    site.execute(
        *allowing(site.connection),
        "create table seen (id int)",
        "create table item (id int primary key, note nvarchar(max), amount int, "
        "check not for replication (amount > 0))",
        "create trigger item_seen on item after insert not for replication as insert into seen select id from inserted",
    )
    item = site.article("item", ITEM)
    history = History().insert(item, ["1", None, "5"]).transaction().insert(item, ["2", None, "-5"])
    error = site.deliver(history).error
    assert error is not None
    assert (error.number, error.key) == ("547", "id = 2")
    site.deliver(History().insert(item, ["1", None, "5"])).raise_error()
    assert (site.rows("item", "id", "amount"), site.rows("seen")) == ([(1, 5)], [(1,)])
