"""When an error is healed: `tranrepl status` and Replication Monitor's lists say the same."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.observed import ITEM, distribution_rows, insert_transactions, stored_commands
from support.site import Site
from support.spark_here import SparkHere
from tranrepl.admin.acknowledgement import acknowledge_errors
from tranrepl.admin.early_warnings import Known, current_warnings
from tranrepl.admin.skip_and_retry import skip_transaction
from tranrepl.admin.status import status
from tranrepl.distribution.opening import open_distribution
from tranrepl.distributor.database.errors import newest_errors, open_errors
from tranrepl.distributor.tables import RunStatus
from tranrepl.errors import VALIDATION_FAILED, ConfigurationError, ErrorKind, ErrorReport, FencedError, TransientError
from tranrepl.jobs.results import JobResult
from tranrepl.jobs.validation_report import ArticleValidation, SubscriptionValidation, passed_comments


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path) -> Site:
    site = Site(databases(), tmp_path / "store", ["public.item"], SparkHere())
    site.at_publisher(ITEM)
    site.set_up()
    return site


def test_a_run_that_ends_before_the_transaction_heals_nothing(site: Site) -> None:
    insert_transactions(site, 1)
    site.run()
    site.at_subscriber("DELETE FROM item")
    site.at_publisher("UPDATE item SET note = 'a'")
    site.read_log().raise_error()
    assert site.deliver().error is not None
    ((before,),) = distribution_rows(site, "SELECT now() - interval '1 hour'")
    site.deliver(committed_before=before).raise_error()
    assert "subscription reporting: its last error is not resolved" in status(site.topology).wrong
    found = status(site.topology).subscriptions[0]
    assert (found.state, found.last_error is not None and found.last_error.healed) == ("Failed", False)
    assert _healed_as_monitored(site) == (False, False, False)
    skip_transaction(site.topology, "reporting", bytes.fromhex(stored_commands(site)[-1].xact_seqno))
    assert _healed_as_monitored(site) == (True, True, True)


def _healed_as_monitored(site: Site) -> tuple[bool, bool, bool]:
    """Return whether the last error of subscription reporting is healed in each of the monitor's lists."""
    with site.topology.distributor() as database, database.transaction() as connection:
        (overview,) = database.overview.of(["purchasing"], timedelta(days=1), 1)
        (last,) = [it.last_error for it in overview.subscriptions if it.subscription == "reporting" and it.last_error]
        number = database.publications.get("purchasing").publication_id
        (listed, *_) = [it.healed for it in newest_errors(connection, number, 9) if it.subscription == "reporting"]
        return last.healed, listed, open_errors(connection, number) == []


def test_a_run_that_was_fenced_off_with_nothing_done_heals_nothing(site: Site) -> None:
    failed = JobResult(error=TransientError("the Subscriber is down").report)
    fenced = JobResult(error=FencedError("another job was faster").report)
    with site.topology.distributor() as database:
        record = database.publications.get("purchasing")
        subscription = database.subscriptions.get(record, "reporting")
        for it in (failed, fenced):
            database.history.record_distribution(record, subscription, it)
            database.history.record_log_reader(record, it)
    assert status(site.topology).wrong == [
        "the log reader's last run failed",
        "the log reader's last error is not resolved",
        "subscription reporting: its last run failed",
        "subscription reporting: its last error is not resolved",
        "subscription reporting: state Retrying failed command",
    ]
    assert _healed_as_monitored(site) == (False, False, False)


def test_a_failed_validation_is_healed_by_one_that_compares_all_articles(site: Site) -> None:
    article = ArticleValidation(article="public.item", destination="item", publisher_rows=1, subscriber_rows=1)
    passed = SubscriptionValidation(xact_seqno="00ab", articles=(article,))
    only_counted = passed.model_copy(update={"rowcount_only": True})
    failed = ErrorReport(kind=ErrorKind.DATA, message="rows differ", number=VALIDATION_FAILED, article="public.item")
    for told, healed in (
        (JobResult(validation=passed, error=failed), False),
        (JobResult(validation=only_counted), False),
        (JobResult(validation=passed), True),
    ):
        with open_distribution(site.topology, "reporting") as opened:
            opened.database.history.record_validation(opened.record, opened.subscription, told)
        site.deliver().raise_error()
        found = status(site.topology).subscriptions[0]
        error = found.last_error
        assert error is not None
        assert (error.number, error.healed) == (VALIDATION_FAILED, healed)
        assert found.state == ("Idle" if healed else "Rows differ")
        assert _healed_as_monitored(site) == (healed, healed, healed)
    assert passed_comments(passed) == "Validation passed at 0x00ab: 1 article, 1 row."


def test_rows_that_differ_are_told_as_long_as_they_do_whatever_else_has_failed_since(site: Site) -> None:
    failed = ErrorReport(kind=ErrorKind.DATA, message="rows differ", number=VALIDATION_FAILED, article="public.item")
    other = ErrorReport(kind=ErrorKind.DATA, message="no row")
    with open_distribution(site.topology, "reporting") as opened:
        history, own = opened.database.history, (opened.record, opened.subscription)
        history.record_validation(*own, JobResult(validation=SubscriptionValidation(xact_seqno="00ab"), error=failed))
        history.record_distribution(*own, JobResult(error=other))
    assert status(site.topology).subscriptions[0].state == "Failed"
    site.deliver().raise_error()
    found = status(site.topology).subscriptions[0]
    assert (found.state, found.last_error and found.last_error.number) == ("Rows differ", VALIDATION_FAILED)
    assert _warned(site) == [("rows differ", "20574", "reporting")]
    assert acknowledge_errors(site.topology, "ada") != []
    assert (status(site.topology).wrong, _warned(site)) == ([], [])


def _warned(site: Site) -> list[tuple[str, str, str]]:
    with site.topology.distributor() as database:
        (overview,) = database.overview.of(["purchasing"], timedelta(days=1), 1)
    current = current_warnings(site.publication, Known(overview, None, None), datetime.now(UTC))
    return [(it.kind.value, it.kind.number, it.subscription) for it in current]


def test_a_snapshots_error_is_healed_by_a_snapshot_alone(site: Site) -> None:
    site.at_subscriber("INSERT INTO item VALUES (1, 1, 'its own')")
    with open_distribution(site.topology, "reporting") as opened:
        opened.database.snapshots.subscribe(opened.subscription, ["public.item"], whole=False)
    with pytest.raises(ConfigurationError, match="holds rows"):
        site.take_snapshot()
    site.run()
    assert status(site.topology).wrong == [
        "subscription reporting: its last error is not resolved",
        "subscription reporting: state Failed",
    ]
    assert _healed_as_monitored(site) == (False, False, False)
    site.at_subscriber("TRUNCATE item")
    site.take_snapshot()
    assert status(site.topology).wrong == []
    assert _healed_as_monitored(site) == (True, True, True)


def test_a_snapshots_error_is_healed_where_none_is_waited_for_any_more(site: Site) -> None:
    site.at_subscriber("INSERT INTO item VALUES (1, 1, 'its own')")
    with open_distribution(site.topology, "reporting") as opened:
        opened.database.snapshots.subscribe(opened.subscription, ["public.item"], whole=False)
        with pytest.raises(ConfigurationError, match="holds rows"):
            site.take_snapshot()
        opened.database.snapshots.forget(opened.subscription)
    site.run()
    assert status(site.topology).wrong == []
    assert _healed_as_monitored(site) == (True, True, True)


def test_an_acknowledged_error_counts_no_more_until_it_comes_again(site: Site) -> None:
    insert_transactions(site, 1)
    site.run()
    site.at_subscriber("DELETE FROM item")
    site.at_publisher("UPDATE item SET note = 'a'")
    site.read_log().raise_error()
    assert site.deliver().error is not None
    assert status(site.topology).wrong == [
        "subscription reporting: its last run failed",
        "subscription reporting: its last error is not resolved",
        "subscription reporting: state Failed",
    ]
    (done,) = acknowledge_errors(site.topology, "ada")
    assert done.startswith("acknowledged: error 20598 of reporting, ")
    assert acknowledge_errors(site.topology, "bob") == []
    found = status(site.topology)
    assert (found.wrong, found.subscriptions[0].state) == ([], "Idle")
    error = found.subscriptions[0].last_error
    assert error is not None
    assert (error.healed, error.acknowledged_by, error.next_steps) == (True, "ada", ())
    assert _healed_as_monitored(site) == (True, True, True)
    with site.topology.distributor() as database:
        (overview,) = database.overview.of(["purchasing"], timedelta(days=1), 1)
    run = overview.subscriptions[0].last_run
    assert run is not None
    assert (run.status, run.outcome) == (RunStatus.FAIL, RunStatus.SUCCEED)
    assert site.deliver().error is not None
    assert len(status(site.topology).wrong) == 3
    assert _healed_as_monitored(site) == (False, False, False)


def test_a_failed_validation_and_a_log_readers_error_are_acknowledged_together(site: Site) -> None:
    article = ArticleValidation(article="public.item", destination="item", publisher_rows=1, subscriber_rows=0)
    failed = ErrorReport(kind=ErrorKind.DATA, message="rows differ", number=VALIDATION_FAILED, article="public.item")
    told = JobResult(validation=SubscriptionValidation(xact_seqno="00ab", articles=(article,)), error=failed)
    with open_distribution(site.topology, "reporting") as opened:
        opened.database.history.record_validation(opened.record, opened.subscription, told)
    site.at_publisher("ALTER TABLE item DROP COLUMN note", "INSERT INTO item VALUES (1, 1)")
    assert site.read_log().error is not None
    assert len(status(site.topology).wrong) == 4
    assert len(acknowledge_errors(site.topology, "ada")) == 2
    assert status(site.topology).wrong == []
    assert _healed_as_monitored(site) == (True, True, True)


def test_a_subscriber_that_is_past_the_transaction_heals_its_error_before_a_run_says_so(site: Site) -> None:
    insert_transactions(site, 1)
    site.run()
    site.at_subscriber("DELETE FROM item")
    site.at_publisher("UPDATE item SET note = 'a'")
    site.read_log().raise_error()
    assert site.deliver().error is not None
    skip_transaction(site.topology, "reporting", bytes.fromhex(stored_commands(site)[-1].xact_seqno))
    # As a job leaves it that was killed after its commit.
    distribution_rows(
        site, "DELETE FROM msdistribution_history WHERE id = (SELECT max(id) FROM msdistribution_history)"
    )
    error = status(site.topology).subscriptions[0].last_error
    assert error is not None
    assert error.healed
    assert _healed_as_monitored(site) == (False, False, False)
