"""Tables of a MariaDB Subscriber that would lose rows or change values: refused with the statement that mends them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import pymysql
import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from support.command_history import Column, History, table_description
from support.subscribers import KEY, KINDS, STATEMENTS, Site
from tranrepl.errors import ConfigurationError, ErrorKind
from tranrepl.model.names import TableName
from tranrepl.model.source_types import source_type
from tranrepl.settings.publication import Article
from tranrepl.subscriber.mariadb.database import MariaDb
from tranrepl.subscriber.mariadb.table_check import size_problem
from tranrepl.subscriber.registry import dialect_of

_COLUMNS = [Column("id", "integer", key=1), Column("name", "text")]
_ENGINES = ["MyISAM", "Aria", "MEMORY"]
_KINDS = [it.name for it in KINDS if it.database == "mariadb"]


def _statement(error: ConfigurationError) -> str:
    return (error.report.remedy or "").removeprefix("run at the Subscriber: ")


@pytest.mark.parametrize("engine", _ENGINES)
def test_a_table_that_does_not_roll_back_is_refused_until_it_is_altered(mariadb_site: Site, engine: str) -> None:
    site = mariadb_site
    site.execute(f"CREATE TABLE t (id int PRIMARY KEY, name varchar(50)) ENGINE={engine}")
    with pytest.raises(ConfigurationError) as refused:
        site.article("t", _COLUMNS)
    assert refused.value.message == (
        f"article public.t: Subscriber reporting: table {site.schema}.t has the storage engine {engine}, which does "
        "not commit and roll back with the watermark"
    )
    assert _statement(refused.value) == f"ALTER TABLE `{site.schema}`.`t` ENGINE=InnoDB;"
    site.execute(_statement(refused.value))
    article = site.article("t", _COLUMNS)
    assert site.deliver(History().insert(article, ["1", "one"])).error is None


@pytest.mark.parametrize("kind", ["mariadb procedures", "mariadb statements"])
def test_a_table_that_ceases_to_roll_back_stops_the_next_delivery(kind: str, make_site: Callable[[str], Site]) -> None:
    site = make_site(kind)
    article, other = site.set_up({"t": _COLUMNS, "other": _COLUMNS})
    site.execute("ALTER TABLE t ENGINE=MyISAM")
    history = History().insert(other, ["1", "one"]).insert(article, ["1", "one"]).insert(article, ["1", "again"])
    error = site.deliver(history).error
    assert error is not None
    assert (error.kind, error.article) == (ErrorKind.CONFIGURATION, "public.t")
    assert (site.rows("t"), site.rows("other")) == ([], [])
    site.execute((error.remedy or "").removeprefix("run at the Subscriber: "))
    assert site.deliver(History().insert(other, ["1", "one"]).insert(article, ["1", "one"])).error is None


def test_a_model_table_that_does_not_roll_back_stops_setup_and_deliveries(mariadb_site: Site) -> None:
    site = mariadb_site
    site.article("t", _COLUMNS)
    site.execute("ALTER TABLE msreplication_subscriptions ENGINE=Aria")
    with dialect_of(site.connection).subscriber(site.connection, KEY, "test") as subscriber:
        # What check, setup and each delivery ask first.
        with pytest.raises(
            ConfigurationError, match="msreplication_subscriptions has the storage engine Aria"
        ) as found:
            subscriber.tables_version()
        site.execute(_statement(found.value))
        assert subscriber.tables_version() is not None


_FILLED = (
    "CREATE TABLE t (id int PRIMARY KEY, note varchar(50), "
    "ts timestamp NOT NULL DEFAULT current_timestamp ON UPDATE current_timestamp, "
    "own datetime DEFAULT current_timestamp ON UPDATE current_timestamp)"
)


@pytest.mark.parametrize("key", [("id",), ("id", "ts")], ids=",".join)
@pytest.mark.parametrize("kind", _KINDS)
def test_a_column_that_fills_itself_keeps_the_publishers_value(
    kind: str, key: Sequence[str], make_site: Callable[[str], Site]
) -> None:
    site = make_site(kind)
    site.execute(_FILLED, f"ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY ({', '.join(key)})")
    columns = [
        Column("id", "integer", key=1),
        Column("note", "text"),
        Column("ts", "timestamp without time zone", key=2 if len(key) == 2 else None, not_null=True),
    ]
    article = site.article("t", columns)
    moment = "2001-02-03 04:05:06"
    history = History().insert(article, ["1", "one", moment])
    history.update(article, ["1", "one", moment], ["1", "two", moment])
    assert site.deliver(history).error is None
    ((note, ts),) = site.rows("t", "note", "ts")
    assert (note, str(ts)) == ("two", moment)


@pytest.mark.filterwarnings("ignore:Did not recognize type")
def test_null_for_which_the_server_makes_a_value_is_refused(mariadb_site: Site) -> None:
    site = mariadb_site
    site.execute(
        "CREATE TABLE t (id int PRIMARY KEY, n int NOT NULL AUTO_INCREMENT UNIQUE, "
        "ts timestamp NOT NULL DEFAULT '2001-01-01', at inet6)"
    )
    types = {"n": "integer", "ts": "timestamp without time zone", "at": "inet"}
    columns = [Column("id", "integer", key=1), *(Column(name, it) for name, it in types.items())]
    article = Article.model_validate(
        {"source": TableName("public", "t"), "destination": TableName(site.schema, "t"), **STATEMENTS}
    )
    with dialect_of(site.connection).subscriber(site.connection, KEY, "test") as subscriber:
        found = [it.message for it in subscriber.article_problems(article, table_description(article.source, columns))]
    at = f"article public.t: Subscriber reporting: column {{!r}} of {site.schema}.t {{}}"
    assert found == [
        at.format("n", "makes the next number of NULL, which it may be at the Publisher"),
        at.format("ts", "makes the time of now of NULL, which it may be at the Publisher"),
        at.format("at", "is of a type whose text form tranrepl does not know"),
    ]


def _wide(count: int, type_name: str, key: Sequence[str] = ("integer",)) -> list[Column]:
    keys = [Column(f"k{at}", it, key=at + 1) for at, it in enumerate(key)]
    return [*keys, *(Column(f"c{at}", type_name) for at in range(count))]


# The widest that fits, and of which one column more does not.
_WIDEST = [
    (_wide(15, "character varying(1000)"), "character varying(1000)"),
    (_wide(383, "text"), "text"),
    (_wide(197, "character varying(10)"), "character varying(10)"),
    (_wide(268, "numeric"), "numeric"),
    (_wide(1016, "integer"), "integer"),
    (_wide(1016, "boolean"), "date"),
]


def _table(columns: Sequence[Column]) -> sa.Table:
    """Return the table as setup would make it, were there room for every row."""
    database = MariaDb("mariadb")
    types = [database.column_type(source_type(it.type_name), indexed=it.key is not None) for it in columns]
    made = [sa.Column(it.name, type_, primary_key=bool(it.key)) for it, type_ in zip(columns, types, strict=True)]
    return sa.Table("t", sa.MetaData(), *made, **database.table_options)


def _is_made(site: Site, columns: Sequence[Column]) -> bool:
    statement = sa.schema.CreateTable(_table(columns)).compile(dialect=mysql.dialect())
    with suppress(pymysql.err.OperationalError):
        site.execute("DROP TABLE IF EXISTS t", "SET sql_mode = 'STRICT_ALL_TABLES'", str(statement))
        return True
    return False


@pytest.mark.parametrize(
    ("columns", "more"),
    [
        *_WIDEST,
        (_wide(16, "character varying(1000)"), "character varying(380)"),
        (_wide(1, "integer", ["character varying(513)", "text"]), None),
        (_wide(1, "integer", ["character varying(514)", "text"]), None),
        (_wide(1, "integer", ["text"] * 3), None),
        (_wide(1, "integer", ["text"] * 4), None),
    ],
)
def test_what_the_server_has_no_room_for_is_known_before(
    mariadb_site: Site, columns: list[Column], more: str | None
) -> None:
    for it in (columns, *([[*columns, Column("more", more)]] if more else [])):
        assert _is_made(mariadb_site, it) == (size_problem(_table(it)) is None), size_problem(_table(it))


def test_setup_makes_texts_of_the_longest_columns_until_a_row_has_room(mariadb_site: Site) -> None:
    site = mariadb_site
    article = site.article("t", [*_wide(60, "character varying(1000)"), Column("short", "character varying(20)")])
    described = "SELECT column_name, column_type FROM information_schema.columns WHERE table_name = 't'"
    types: dict[str, str] = dict(site.execute(described))
    assert list(types.values()).count("longtext") == 44
    assert types["short"] == "varchar(20)"
    row: list[str | None] = ["1", *("😀" * 1000 for _ in range(60)), "s"]
    assert site.deliver(History().insert(article, row)).error is None
    assert list(site.rows("t")[0]) == [1, *row[1:]]


def test_a_table_that_setup_cannot_make_is_refused(mariadb_site: Site) -> None:
    with pytest.raises(ConfigurationError, match="has rows of which up to 8198 bytes are in one page") as refused:
        mariadb_site.article("t", _wide(387, "text"))
    assert "articles[].columns" in (refused.value.report.remedy or "")
    with pytest.raises(ConfigurationError, match="has a primary key of up to 4088 bytes: InnoDB takes 3072"):
        mariadb_site.article("t", _wide(1, "text", ["text"] * 4))
