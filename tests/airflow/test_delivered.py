"""Attempts of one run added up."""

from __future__ import annotations

import pytest

from tranrepl.connections import Connection
from tranrepl.jobs.results import JobResult
from tranrepl.model.names import TableName
from tranrepl_airflow.assets import standard_asset, subscriber_table
from tranrepl_airflow.delivered import Delivery, delivery_of


def test_attempts_are_added_up_and_the_last_watermark_counts() -> None:
    first = JobResult(transactions=2, commands=3, commands_by_article={"a.b": 3}, last_xact_seqno="0a")
    second = JobResult(transactions=1, commands=5, commands_by_article={"a.b": 1, "a.c": 4}, last_xact_seqno="0b")
    assert delivery_of([first, second]) == Delivery(3, 8, {"a.b": 4, "a.c": 4}, "0b")


def test_skipped_commands_of_all_attempts_are_counted() -> None:
    assert delivery_of([JobResult(skipped=1), JobResult(skipped=2)]).skipped == 3


def test_an_attempt_that_was_fenced_leaves_the_watermark_of_the_other() -> None:
    assert delivery_of([JobResult(last_xact_seqno="0a"), JobResult()]).last_xact_seqno == "0a"


def test_nothing_attempted_is_nothing_delivered() -> None:
    assert delivery_of([]) == Delivery(0, 0, {}, None)


def test_a_tables_uri_tells_names_with_a_dot_apart() -> None:
    uris = {subscriber_table("p", "s", TableName(*name)).uri for name in (("a.b", "c"), ("a", "b.c"))}
    assert uris == {"x-tranrepl://p/s/%22a.b%22.c", "x-tranrepl://p/s/a.%22b.c%22"}


@pytest.mark.parametrize(
    ("kind", "host", "port", "uri"),
    [
        ("postgres", "sub", None, "postgres://sub:5432/dwh/a.b/c%2Fd"),
        ("postgresql", "10.0.0.1", 6432, "postgres://10.0.0.1:6432/dwh/a.b/c%2Fd"),
        ("mariadb", "sub", None, "mysql://sub:3306/a.b/c%2Fd"),
        ("mysql", "::1", 3307, "mysql://[::1]:3307/a.b/c%2Fd"),
        ("mssql", "sub", None, "mssql://sub:1433/dwh/a.b/c%2Fd"),
        ("sqlite", None, None, None),
        ("postgres", "one,other", None, None),
        ("postgres", "/run/postgresql", None, None),
    ],
)
def test_a_tables_address_is_the_one_that_providers_give_it(
    kind: str, host: str | None, port: int | None, uri: str | None
) -> None:
    connection = Connection("mart", kind, host=host, port=port, database="dwh")
    found = standard_asset(connection, TableName("a.b", "c/d"))
    assert (None if found is None else found.uri) == uri
