"""How changes go out: the worked examples of KB 238254, command by command, and updates of unique columns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.databases import Databases, shared_databases
from support.embedded_postgres import PostgresServer
from support.in_process import deliver_commands, read_commands, replicate
from support.site import Site, execute
from support.spark_here import SparkHere
from tranrepl.errors import ConfigurationError, ErrorKind, ReplicationError

TABLE1 = "CREATE TABLE table1 (col1 int PRIMARY KEY, col2 int, col3 varchar(30))"
POLICIES = ("pairs", "singleton_update", "always_pairs")


def _site(databases: Databases, tmp_path: Path, table: str, *statements: str, **settings: object) -> Site:
    """Return a set-up publication of one table, whose log begins after `statements`."""
    site = Site(databases, tmp_path / "store", [{"source": f"public.{table}", **settings}])
    site.at_publisher(*statements)
    site.set_up()
    return site


def _commands(site: Site) -> list[str]:
    return replicate(site).texts()


_PAIR = ["{CALL [sp_MSdel_publictable1] (1)}", "{CALL [sp_MSins_publictable1] (3,1,'Dallas')}"]
_SINGLETON = ["{CALL [sp_MSupd_publictable1] (3,,,1,0x01)}"]


@pytest.mark.parametrize(("policy", "expected"), [("pairs", _PAIR), ("singleton_update", _SINGLETON)])
def test_an_update_of_a_unique_column_is_deferred(
    policy: str, expected: list[str], databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = _site(databases(), tmp_path, "table1", TABLE1, update_policy=policy)
    site.at_publisher("INSERT INTO table1 VALUES (1, 1, 'Dallas')")
    replicate(site)
    site.at_publisher("UPDATE table1 SET col1 = 3 WHERE col3 = 'Dallas'")
    assert _commands(site) == expected
    assert site.at_subscriber("SELECT * FROM table1") == [(3, 1, "Dallas")]


def test_with_always_pairs_every_update_is_a_pair(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _site(databases(), tmp_path, "table1", TABLE1, update_policy="always_pairs")
    site.at_publisher("INSERT INTO table1 VALUES (1, 1, 'Dallas')")
    replicate(site)
    site.at_publisher("UPDATE table1 SET col2 = 7")
    pair = ["{CALL [sp_MSdel_publictable1] (1)}", "{CALL [sp_MSins_publictable1] (1,7,'Dallas')}"]
    assert _commands(site) == pair


@pytest.mark.parametrize("method", ["CALL", "SQL"])
def test_a_row_that_crosses_the_filter_comes_or_goes(method: str, databases: DatabasesFactory, tmp_path: Path) -> None:
    settings = {"ins_cmd": method, "del_cmd": method, "filter": "col3 = 'Dallas'"}
    site = _site(databases(), tmp_path, "table1", TABLE1, **settings)
    site.at_publisher("INSERT INTO table1 VALUES (3, 1, 'Dallas'), (4, 1, 'Austin'), (5, 1, NULL)")
    kinds = {"CALL": ("{CALL [sp_MSdel_publictable1] (", ")}"), "SQL": ("DELETE public.table1 (", ")")}[method]
    inserted = ("{CALL [sp_MSins_publictable1] (", ")}") if method == "CALL" else ("INSERT public.table1 (", ")")
    assert _commands(site) == [f"{inserted[0]}3,1,'Dallas'{inserted[1]}"]
    # Inside and outside of the filter, across it, and where it is not known to be true.
    steps = {
        "UPDATE table1 SET col3 = 'New York' WHERE col1 = 3": [f"{kinds[0]}3{kinds[1]}"],
        "UPDATE table1 SET col2 = 2 WHERE col1 = 3": [],
        "UPDATE table1 SET col3 = 'Dallas' WHERE col1 = 3": [f"{inserted[0]}3,2,'Dallas'{inserted[1]}"],
        "UPDATE table1 SET col2 = 5 WHERE col1 = 3": ["{CALL [sp_MSupd_publictable1] (,5,,3,0x02)}"],
        "UPDATE table1 SET col3 = NULL WHERE col1 = 3": [f"{kinds[0]}3{kinds[1]}"],
        "DELETE FROM table1 WHERE col1 = 3": [],
        "UPDATE table1 SET col3 = 'Dallas' WHERE col1 = 5": [f"{inserted[0]}5,1,'Dallas'{inserted[1]}"],
        "DELETE FROM table1 WHERE col1 = 5": [f"{kinds[0]}5{kinds[1]}"],
    }
    for statement, expected in steps.items():
        site.at_publisher(statement)
        assert _commands(site) == expected, statement


def test_a_transition_that_goes_out_as_what_is_not_propagated_is_dropped(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = _site(databases(), tmp_path, "table1", TABLE1, ins_cmd="NONE", filter="col3 = 'Dallas'")
    site.at_publisher(
        "INSERT INTO table1 VALUES (1, 1, 'Dallas'), (2, 1, 'Austin')",
        "UPDATE table1 SET col3 = 'Dallas' WHERE col1 = 2",
        "UPDATE table1 SET col1 = 9 WHERE col1 = 1",
    )
    assert read_commands(site).texts() == ["{CALL [sp_MSdel_publictable1] (1)}"]


def test_changes_of_unpublished_columns_send_nothing(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _site(databases(), tmp_path, "table1", TABLE1, columns=["col1", "col3"])
    site.at_publisher("INSERT INTO table1 VALUES (1, 1, 'Dallas')", "UPDATE table1 SET col2 = 2")
    read = replicate(site)
    assert read.texts() == ["{CALL [sp_MSins_publictable1] (1,'Dallas')}"]
    assert read.account.changed_transactions == 1


# Many rows of one statement


def _site_of_policies(databases: Databases, tmp_path: Path, table: str, columns: str) -> Site:
    """Return a site, not set up, with a table for each update policy, whose name begins with `table`."""
    policies = {f"{table}_{policy}": policy for policy in POLICIES}
    articles = [{"source": f"public.{name}", "update_policy": policy} for name, policy in policies.items()]
    site = Site(databases, tmp_path / "store", articles)
    site.at_publisher(*(f"CREATE TABLE {name} ({columns})" for name in policies))
    return site


def _at_each_table(site: Site, statement: str) -> None:
    """Execute at the Publisher, with each article's table for the braces."""
    site.at_publisher(*(statement.format(it.source.table) for it in site.publication.articles))


def test_ten_thousand_keys_that_move_in_one_statement_arrive(databases: DatabasesFactory, tmp_path: Path) -> None:
    # In the other order, the Publisher refuses it.
    numbers = "generate_series(10000, 1, -1)"
    columns = "id int PRIMARY KEY, name text, same int NOT NULL DEFAULT 0"
    site = _site_of_policies(databases(), tmp_path, "moving", columns)
    site.set_up()
    _at_each_table(site, f"INSERT INTO {{0}} (id, name) SELECT n, 'name ' || n FROM {numbers} n")
    replicate(site)
    _at_each_table(site, "UPDATE {0} SET id = id + 1")
    replicate(site)
    assert site.differences() == []


_SWAP = (
    "BEGIN; UPDATE {0} SET code = -1 WHERE id = 1; UPDATE {0} SET code = 10 WHERE id = 2; "
    "UPDATE {0} SET code = 20 WHERE id = 1; COMMIT"
)
_MOVED_THREE_TIMES = (
    "BEGIN; UPDATE {0} SET id = 5 WHERE id = 1; UPDATE {0} SET id = 6 WHERE id = 5; "
    "UPDATE {0} SET id = 7, code = 30 WHERE id = 6; COMMIT"
)


@pytest.mark.parametrize("statement", [_SWAP, _MOVED_THREE_TIMES], ids=["swap by way of a third value", "moved thrice"])
def test_unique_values_that_change_hands_arrive(statement: str, databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _site_of_policies(databases(), tmp_path, "pair", "id int PRIMARY KEY, code int UNIQUE")
    # Unique at every moment at the Subscriber.
    for article in site.publication.articles:
        site.at_subscriber(f"CREATE TABLE {article.source} (id int PRIMARY KEY, code int UNIQUE)")
    site.set_up()
    _at_each_table(site, "INSERT INTO {0} VALUES (1, 10), (2, 20), (3, NULL)")
    replicate(site)
    _at_each_table(site, statement)
    replicate(site)
    assert site.differences() == []


# TRUNCATE


def test_truncate_empties_the_articles_rows_in_order(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _site(databases(), tmp_path, "table1", TABLE1, filter="table1.col2 > 0", destination="public.copy1")
    site.at_subscriber("INSERT INTO copy1 VALUES (100, 0, 'not of this article')")
    site.at_publisher(
        "BEGIN; INSERT INTO table1 VALUES (1, 1, 'x'); TRUNCATE table1; INSERT INTO table1 VALUES (2, 1, 'x'); COMMIT",
        "INSERT INTO table1 VALUES (3, 1, 'y')",
    )
    replicate(site)
    assert site.at_subscriber("SELECT col1 FROM copy1 ORDER BY 1") == [(2,), (3,), (100,)]


_AROUND_A_TRUNCATE = (
    "INSERT INTO table1 VALUES (1, 1, 'x')",
    "TRUNCATE table1",
    "INSERT INTO table1 VALUES (2, 1, '')",
)


def test_truncate_may_be_ignored(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _site(databases(), tmp_path, "table1", TABLE1, truncate="ignore")
    site.at_publisher(*_AROUND_A_TRUNCATE)
    replicate(site)
    assert site.at_subscriber("SELECT col1 FROM table1 ORDER BY 1") == [(1,), (2,)]


def test_truncate_may_be_an_error_after_what_came_before_it(databases: DatabasesFactory, tmp_path: Path) -> None:
    ends = databases()
    site = Site(ends, tmp_path / "store", [{"source": "public.table1", "truncate": "error"}], SparkHere())
    site.at_publisher(TABLE1)
    site.set_up()
    site.at_publisher(*_AROUND_A_TRUNCATE)
    result = site.read_log()
    assert result.error is not None
    assert (result.error.kind, result.transactions) == (ErrorKind.CONFIGURATION, 1)
    assert "public.table1: the table was truncated" in result.error.message
    site.deliver().raise_error()
    assert site.at_subscriber("SELECT col1 FROM table1") == [(1,)]
    allowed = Site(ends, tmp_path / "store", [{"source": "public.table1"}], SparkHere())
    allowed.set_up()
    allowed.run()
    assert site.at_subscriber("SELECT col1 FROM table1") == [(2,)]


# Filters that check refuses


@pytest.fixture(scope="module")
def one_table(postgres: PostgresServer) -> Iterator[Databases]:
    """Yield databases that a refused setup leaves as they are: a table at the Publisher, and nothing else."""
    with shared_databases(postgres, "one_table") as ends:
        execute(ends.publisher, TABLE1)
        yield ends


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"filter": "col2 >"}, "filter: not a condition in SQL"),
        ({"filter": "col2 = 1; DROP TABLE table1"}, "filter: allowed: one condition"),
        ({"filter": "col9 = 1"}, "filter: column col9 is not published"),
        ({"filter": "col2 = 1", "columns": ["col1", "col3"]}, "filter: column col2 is not published"),
        ({"filter": "other.col2 = 1"}, "other.col2: allowed: columns of table1"),
        ({"filter": "col2 = (SELECT max(col2) FROM table1)"}, "looks at the values of one row only"),
        ({"filter": "max(col2) > 1"}, "looks at the values of one row only"),
        ({"filter": "col2 > random()"}, "RANDOM() is not immutable: its result may change with time"),
        ({"filter": "col2 > extract(day FROM now())"}, "CURRENT_TIMESTAMP is not immutable"),
        ({"filter": "col3 > 1"}, "operator does not exist"),
        ({"filter": "col2 + 1"}, "must be type boolean"),
        ({"lob_columns": ["col9"]}, "lob_columns: 'col9' is not published"),
        (
            {"filter": "col2 = 1", "replica_identity": "default"},
            "the log carries no before image of the table, which is needed for filter",
        ),
        ({"upd_cmd": "XCALL", "replica_identity": "default"}, "is needed for XCALL"),
        ({"upd_cmd": "MCALL", "replica_identity": "default"}, "is needed for upd_cmd: MCALL"),
    ],
)
def test_check_refuses_what_cannot_be_filtered(
    settings: dict[str, object], said: str, one_table: Databases, tmp_path: Path
) -> None:
    with pytest.raises(ReplicationError, match=re.escape(said)) as refused:
        _site(one_table, tmp_path, "table1", **settings)
    assert isinstance(refused.value, ConfigurationError)
    assert refused.value.report.remedy


def test_a_filter_that_fails_on_a_row_stops_the_log_reader(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _site(databases(), tmp_path, "table1", TABLE1, filter="10 / col2 > 1")
    site.at_publisher("INSERT INTO table1 VALUES (1, 2, 'x')")
    replicate(site)
    site.at_publisher("INSERT INTO table1 VALUES (2, 0, 'x')")
    with pytest.raises(ReplicationError, match=r"public\.table1: filter: division by zero"):
        read_commands(site)


_CONDITIONS = ("col2 % 3 = 1", "col3 LIKE 'name 1%' AND col2 < 5000", "coalesce(col3, '') <> 'name 8'")


@pytest.mark.parametrize("condition", _CONDITIONS)
def test_many_values_are_filtered_as_the_publisher_filters(
    condition: str, databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = _site(databases(), tmp_path, "table1", TABLE1, filter=condition)
    site.at_publisher(
        "INSERT INTO table1 SELECT n, n, CASE WHEN n % 7 > 0 THEN 'name ' || n END FROM generate_series(1, 20000) n",
        "UPDATE table1 SET col2 = col2 + 1 WHERE col1 % 2 = 0",
        "DELETE FROM table1 WHERE col1 % 5 = 0",
    )
    replicate(site)
    published = site.at_publisher(f"SELECT * FROM table1 WHERE {condition} ORDER BY 1")
    assert 0 < len(published) < 16000
    assert site.at_subscriber("SELECT * FROM table1 ORDER BY 1") == published


def test_rows_of_the_filter_are_found_under_every_spelling_of_their_values(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    awkward: Sequence[str] = ["", "a,b", 'q"uote', "back\\slash", "{brace}", "NULL", "null", "tab\tnewline\n", "ü𝄞"]
    site = _site(databases(), tmp_path, "table1", TABLE1, filter="col3 <> 'nothing'")
    values = ", ".join(f"({n}, NULL, $v${text}$v$)" for n, text in enumerate(awkward))
    site.at_publisher(f"INSERT INTO table1 VALUES {values}, (100, 1, NULL)")
    read = read_commands(site)
    deliver_commands(site, read).raise_error()
    assert site.at_subscriber("SELECT col3 FROM table1 ORDER BY col1") == [(text,) for text in awkward]
