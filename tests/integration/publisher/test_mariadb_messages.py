"""Messages of ours in a MariaDB Publisher's log: tracer tokens, changed definitions and scripts, each at its place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from conftest import DatabasesFactory
from support.mariadb import MariaDbServer
from support.remedies import reinitialize_all
from support.site import Site
from support.spark_here import SparkHere
from tranrepl.admin.check import check
from tranrepl.admin.exec_script import exec_script
from tranrepl.admin.reinitialization import Rows
from tranrepl.admin.trace import newest_tokens, post_token
from tranrepl.errors import ConfigurationError, MissingRightError
from tranrepl.log_reader import tracer_tokens
from tranrepl.model.script import Script
from tranrepl.model.tracer_token import TracerToken
from tranrepl.publisher.registry import open_publisher

_REPORTING = {"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}
_databases = count(1)


class Shop(Site):
    """A publication of a MariaDB database, delivered to PostgreSQL: table `item`, whose rows both ends compare."""

    server: MariaDbServer
    schema: str

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        return self.server.execute(*statements, database=self.schema)

    def changed(self, batch: int = 1000, **article: Any) -> Shop:
        """Return the publication with another file, and with batches of so many transactions."""
        named = {"source": f"{self.schema}.item", "destination": "public.item", **article}
        store, reader = self.publication.distributor.store, {"read_batch_size": batch}
        shop = Shop(self.databases, store, [named], self.spark, [_REPORTING], log_reader=reader)
        shop.server, shop.schema = self.server, self.schema
        return shop

    def require_equal(self, columns: str = "id, name, note") -> None:
        query = f"SELECT {columns} FROM item ORDER BY id"
        assert self.at_subscriber(query) == self.execute(query)


@pytest.fixture
def shop(mariadb_shop: MariaDbServer, databases: DatabasesFactory, tmp_path: Path) -> Iterator[Shop]:
    schema = f"shop{next(_databases)}"
    mariadb_shop.execute(f"CREATE DATABASE {schema}")
    ends = replace(databases(), publisher=mariadb_shop.connection(schema, "publisher"))
    article = {"source": f"{schema}.item", "destination": "public.item"}
    shop = Shop(ends, tmp_path / "store", [article], SparkHere(), [_REPORTING])
    shop.server, shop.schema = mariadb_shop, schema
    shop.execute(
        "CREATE TABLE item (id int PRIMARY KEY, name varchar(40), note varchar(40)) "
        "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
        "INSERT INTO item VALUES (1, 'one', NULL), (2, 'two', 'second')",
    )
    shop.set_up()
    shop.take_snapshot().raise_error()
    yield shop
    mariadb_shop.execute("DROP DATABASE IF EXISTS tranrepl")


def test_tracer_tokens_are_measured_alone_and_among_changes(shop: Shop) -> None:
    tokens = [post_token(shop.topology)]
    assert shop.probe_log() is None
    shop.run()
    shop.execute("UPDATE item SET note = 'new' WHERE id = 1")
    tokens.append(post_token(shop.topology))
    shop.execute("INSERT INTO item VALUES (3, 'three', NULL)")
    shop.run()
    shop.require_equal()
    found = newest_tokens(shop.topology, 5)
    assert [it.token for it in found] == tokens[::-1]
    assert all(it.has_arrived for it in found)
    # To the microsecond, though the log has whole seconds.
    assert any(it.publisher_commit is not None and it.publisher_commit.microsecond for it in found)
    assert shop.execute("SELECT publication, kind FROM tranrepl.message") == [
        (f"{shop.schema}/tranrepl_purchasing", "tranrepl.publication")
    ]


@pytest.mark.parametrize("batch", [1000, pytest.param(1, marks=pytest.mark.slow)])
def test_a_changed_file_takes_effect_at_its_place_in_the_log(shop: Shop, batch: int) -> None:
    shop.execute("INSERT INTO item VALUES (3, 'before', 'travels')", "UPDATE item SET note = 'travels' WHERE id = 1")
    changed = shop.changed(batch, columns=["id", "name"], ins_cmd="SQL", upd_cmd="SQL", del_cmd="SQL")
    said = changed.set_up()
    assert any("the Publisher's log has the new definition of article" in it for it in said)
    shop.execute(
        "INSERT INTO item VALUES (4, 'after', 'stays')",
        "UPDATE item SET name = 'renamed', note = 'stays' WHERE id = 3",
        "DELETE FROM item WHERE id = 2",
    )
    changed.run()
    expected = [(1, "one", "travels"), (3, "renamed", "travels"), (4, "after", None)]
    assert changed.at_subscriber("SELECT id, name, note FROM item ORDER BY id") == expected
    changed.require_equal("id, name")
    # Rows that stayed behind come with a snapshot of the article.
    back = changed.changed(batch, pre_creation_cmd="delete")
    back.set_up()
    shop.execute("UPDATE item SET name = 'again' WHERE id = 4")
    back.read_log().raise_error()
    back.take_snapshot().raise_error()
    shop.execute("INSERT INTO item VALUES (5, 'five', 'whole')")
    back.run()
    back.require_equal()


def test_a_script_runs_at_its_place_among_the_changes(shop: Shop, tmp_path: Path) -> None:
    script = tmp_path / "seen.sql"
    script.write_text("CREATE TABLE seen AS SELECT id, E'it''s \\\\ \"quoted\" é 😀'::text AS it FROM item;")
    shop.execute("INSERT INTO item VALUES (3, 'three', NULL)")
    written = exec_script(shop.topology, script)
    assert written.runs_at == ("reporting",)
    shop.execute("INSERT INTO item VALUES (4, 'four', NULL)")
    _insert_again(shop, script)
    shop.run()
    shop.require_equal()
    text = 'it\'s \\ "quoted" é 😀'
    assert shop.at_subscriber("SELECT id, it FROM seen ORDER BY id") == [(it, text) for it in (1, 2, 3)]
    script.write_text("VACUUM")
    with pytest.raises(ConfigurationError, match="PostgreSQL runs it outside of transactions only"):
        exec_script(shop.topology, script)
    script.write_text(f"SELECT '{'x' * 600_000}'")
    shop.execute("SET GLOBAL max_allowed_packet = 1048576")
    try:
        with pytest.raises(ConfigurationError, match="too long for max_allowed_packet") as raised:
            exec_script(shop.topology, script)
        with shop.topology.distributor() as database:
            assert database.scripts.written(database.publications.get("purchasing")) == ()
        shop.execute(raised.value.report.remedy or "")
        exec_script(shop.topology, script)
    finally:
        shop.execute("SET GLOBAL max_allowed_packet = DEFAULT")
    script.write_text("CREATE TABLE seen_once ()")
    exec_script(shop.topology, script)
    _insert_again(shop, script)
    read = shop.changed(batch=1).read_log()
    assert any("has run already" in it for it in read.notices)
    shop.run()


def _insert_again(shop: Shop, file: Path) -> None:
    """Write a script's message as somebody would who may write into the table: it must not run twice."""
    script = Script(publication="tranrepl_purchasing", name=file.name, sql=file.read_text())
    with shop.server.connect("tranrepl") as session, session.cursor() as cursor:
        cursor.execute(
            "INSERT INTO message (publication, kind, written, content) "
            "SELECT publication, 'tranrepl.script', 1, %s FROM message WHERE kind = 'tranrepl.publication'",
            [script.message],
        )


def _token(letter: str) -> str:
    return TracerToken(publication="tranrepl_purchasing", token=letter * 32).message


def test_what_others_do_to_the_table_means_nothing(shop: Shop) -> None:
    """Only an INSERT counts, of a message as this version writes it, committed and logged as a row."""
    posted = post_token(shop.topology)
    ((ours,),) = shop.execute("SELECT publication FROM tranrepl.message")
    insert = "INSERT INTO tranrepl.message (publication, kind, written, content) VALUES (%s, %s, 1, %s)"
    script = Script(publication="tranrepl_purchasing", name="evil.sql", sql="CREATE TABLE evil (id int)")
    with shop.server.connect(shop.schema) as session, session.cursor() as cursor:
        session.autocommit(False)
        cursor.execute(insert, [ours, "tranrepl.tracer", _token("a")])
        session.rollback()
        cursor.execute("INSERT INTO item VALUES (3, 'three', NULL)")
        cursor.execute("SAVEPOINT before_it")
        cursor.execute(insert, [ours, "tranrepl.tracer", _token("b")])
        cursor.execute("ROLLBACK TO SAVEPOINT before_it")
        session.commit()
        session.autocommit(True)
        cursor.execute(insert, ["another", "other", "x"])
        cursor.execute(
            "UPDATE tranrepl.message SET publication = %s, kind = 'tranrepl.tracer', content = %s WHERE kind = 'other'",
            [ours, _token("c")],
        )
        cursor.execute("DELETE FROM tranrepl.message WHERE kind = 'tranrepl.tracer'")
        for content in ('{"v": 1', "x" * 1_000_000, script.message):
            cursor.execute(insert, [ours, "tranrepl.tracer", content])
        cursor.execute(insert, [ours, "tranrepl.script", script.message])
        cursor.execute("SET SESSION binlog_row_image = MINIMAL, sql_mode = ''")
        cursor.execute("INSERT INTO tranrepl.message (publication, kind) VALUES (%s, 'tranrepl.tracer')", [ours])
        cursor.execute("UPDATE tranrepl.message SET written = 2")
    shop.execute("INSERT INTO item VALUES (4, 'four', NULL)")
    read = shop.read_log()
    read.raise_error()
    shop.deliver().raise_error()
    shop.require_equal()
    assert any("a row of table tranrepl.message that tranrepl has not written" in it for it in read.notices)
    assert any("a script that is not registered" in it and "evil.sql" in it for it in read.notices)
    assert [it.token for it in newest_tokens(shop.topology, 9)] == [posted]
    assert shop.at_subscriber("SELECT to_regclass('evil')") == [(None,)]
    # A table that is emptied, or altered by its owner, does no harm.
    shop.execute("TRUNCATE tranrepl.message", "ALTER TABLE tranrepl.message ADD COLUMN more int DEFAULT 1")
    posted = post_token(shop.topology)
    shop.run()
    assert newest_tokens(shop.topology, 1)[0].token == posted
    with shop.server.connect(shop.schema) as session, session.cursor() as cursor:
        cursor.execute("SET SESSION binlog_format = STATEMENT")
        cursor.execute(insert, [ours, "tranrepl.tracer", _token("d")])
    error = shop.read_log().error
    assert error is not None
    assert "a transaction is in the binary log as statements" in error.message


def test_a_login_without_the_right_is_told_the_grant_and_writes_nothing(shop: Shop) -> None:
    shop.execute(
        "DROP USER IF EXISTS least@'127.0.0.1'",
        "CREATE USER least@'127.0.0.1' IDENTIFIED BY 'least'",
        *shop.server.least_rights("least@'127.0.0.1'", shop.schema),
        "REVOKE ALL ON tranrepl.* FROM least@'127.0.0.1'",
    )
    least = replace(shop.databases.publisher, login="least", password="least")  # noqa: S106
    poor = Shop(
        replace(shop.databases, publisher=least),
        shop.publication.distributor.store,
        [{"source": f"{shop.schema}.item", "destination": "public.item"}],
        shop.spark,
        [_REPORTING],
    )
    with pytest.raises(
        MissingRightError, match="no message can be written into the log: INSERT command denied"
    ) as raised:
        post_token(poor.topology)
    (warning,) = (it for it in check(poor.topology).warnings if "have no way into the log" in it)
    grant, _, _ = (raised.value.report.remedy or "").partition(";")
    assert grant in warning
    assert grant.endswith("TO 'least'@'127.0.0.1'")
    with poor.topology.publisher("test") as publisher:
        assert publisher.schema_changes.left_to_make()[-1] == grant
        (left,) = publisher.find_removal([], {}, "").stays
    assert "table tranrepl.message, if it is there" in left
    shop.execute("DROP DATABASE tranrepl", grant)
    poor.set_up()
    token = post_token(poor.topology)
    poor.run()
    assert newest_tokens(shop.topology, 1)[0].token == token
    assert [it for it in check(poor.topology).warnings if "have no way" in it] == []
    with poor.topology.publisher("test") as publisher:
        assert publisher.schema_changes.left_to_make() == []
        publisher.remove(publisher.find_removal([], {}, ""), print)
    assert shop.execute("SHOW DATABASES LIKE 'tranrepl'") == []
    with poor.topology.publisher("test") as publisher:
        # A table that somebody dropped keeps no log from being read.
        (unposted,) = tracer_tokens.post_token(publisher)
    assert "run `tranrepl setup FILE`" in unposted


def test_after_an_altered_table_setup_and_a_reinitialization_go_on(shop: Shop) -> None:
    shop.execute("INSERT INTO item VALUES (3, 'three', NULL)", "ALTER TABLE item ADD COLUMN more int DEFAULT 7")
    shop.execute("INSERT INTO item VALUES (4, 'four', NULL, 8)")
    assert shop.read_log().error is not None
    shop.at_subscriber("ALTER TABLE item ADD COLUMN more int")
    again = shop.changed(pre_creation_cmd="delete")
    again.set_up()
    error = again.read_log().error
    assert error is not None
    assert "was altered" in error.message
    # It reads the log first, so that the snapshot finds the altered table registered.
    reinitialize_all(again, Rows.SNAPSHOT)
    again.take_snapshot().raise_error()
    shop.execute("INSERT INTO item VALUES (5, 'five', NULL, 9)")
    again.run()
    again.require_equal("id, name, note, more")


def test_publications_whose_names_differ_in_a_hyphen_are_two(shop: Shop) -> None:
    connection = shop.databases.publisher
    with open_publisher(connection, "a-b", "test") as one, open_publisher(connection, "a_b", "test") as other:
        for it in (one, other):
            assert len(it.set_up([])) == 1
            assert it.set_up([]) == []
        one.remove(one.find_removal([], {}, ""), print)
        assert [it.statement for it in one.find_removal([], {}, "").steps] == []
        assert len(other.find_removal([], {}, "").steps) == 1
        other.remove(other.find_removal([], {}, ""), print)
