"""Attempts of one run added up."""

from __future__ import annotations

from tranrepl.jobs.results import JobResult
from tranrepl.model.names import TableName
from tranrepl_airflow.assets import subscriber_table
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
