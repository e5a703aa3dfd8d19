"""Schema changes where DDL ends the transaction: killed between any two steps, or met by another job, they are applied
once, and so is every row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from support.child_job import ChildJob
from support.command_history import Column, History, seqno
from support.mariadb import MariaDbServer
from support.observed import wait_until
from support.schema_changes import added, change, renamed
from support.subscribers import KEY, DeliveryOfCommands, Site
from tranrepl.errors import ErrorKind
from tranrepl.failpoint import Failpoint
from tranrepl.model.command_rows import ROW_LAYOUT
from tranrepl.model.commands import Operation
from tranrepl.model.schema_change import SchemaChange
from tranrepl.subscriber.batching.steps import SchemaStep
from tranrepl.subscriber.registry import dialect_of
from tranrepl.subscriber.subscription import CommandPlace, SubscriptionPosition

ID, A, B = Column("id", "integer", key=1), Column("a", "text"), Column("b", "text")
TOTAL = Column("total", "numeric(10,2)")
_STEPS = (
    Failpoint.CHANGE_BEGUN,
    Failpoint.COLUMNS_CHANGED,
    Failpoint.PROCEDURES_FOLLOWED,
    Failpoint.DEFINITION_RECORDED,
)
_DEFAULT = """SELECT column_default FROM information_schema.columns
WHERE table_schema = DATABASE() AND table_name = 'vendor' AND column_name = 'total'"""


@pytest.fixture(params=["mariadb procedures", pytest.param("mariadb statements", marks=pytest.mark.slow)])
def site(request: pytest.FixtureRequest, make_site: Callable[[str], Site]) -> Site:
    made = make_site(str(request.param))
    # Every row that is inserted, once.
    made.execute("CREATE TABLE audit (seq bigint AUTO_INCREMENT PRIMARY KEY, id bigint)")
    return made


def _swapping(site: Site) -> DeliveryOfCommands:
    """Deliver a transaction in which two columns swap their names and a third is added, with rows everywhere."""
    old = site.article("vendor", [ID, A, B])
    site.execute("CREATE TRIGGER audited AFTER INSERT ON vendor FOR EACH ROW INSERT INTO audit (id) VALUES (NEW.id)")
    swapped = site.next_definition(old, [ID, B, A])
    new = site.next_definition(swapped, [ID, B, A, TOTAL])
    history = History().insert(old, ["1", "one", "ONE"])
    history.transaction().insert(old, ["2", "two", "TWO"])
    history.schema(change(old, swapped, renamed("a", "c"), renamed("b", "a"), renamed("c", "b")))
    history.insert(swapped, ["3", "three", "THREE"])
    history.schema(change(swapped, new, added(TOTAL, "0.50"))).insert(new, ["4", "four", "FOUR", None])
    history.transaction().insert(new, ["5", "five", "FIVE", "9.99"])
    return site.delivery(history.table(), transactions=1)


def _assert_delivered(site: Site) -> None:
    assert [(number, b, a, None if total is None else str(total)) for number, b, a, total in site.rows("vendor")] == [
        (1, "one", "ONE", "0.50"),
        (2, "two", "TWO", "0.50"),
        (3, "three", "THREE", "0.50"),
        (4, "four", "FOUR", None),
        (5, "five", "FIVE", "9.99"),
    ]
    assert site.rows("audit", "id") == [(1,), (2,), (3,), (4,), (5,)]
    assert _position(site) == SubscriptionPosition(seqno(3))
    assert site.execute(_DEFAULT) == [("NULL",)]


def _position(site: Site) -> SubscriptionPosition:
    with dialect_of(site.connection).subscriber(site.connection, KEY, "test") as subscriber:
        return subscriber.position()


def _rest(delivery: DeliveryOfCommands, site: Site) -> DeliveryOfCommands:
    """Return what a job delivers next: whole transactions."""
    return site.delivery(delivery.commands.filter(_after(delivery, site.watermark())), site.watermark(), 1)


def _after(delivery: DeliveryOfCommands, watermark: bytes) -> list[bool]:
    return [it > watermark for it in delivery.commands["xact_seqno"].to_pylist()]


def test_a_change_killed_between_any_two_steps_is_made_once(site: Site) -> None:
    delivery = _swapping(site)
    for nth in (1, 2):
        for step in _STEPS:
            assert ChildJob(DeliveryOfCommands.run, _rest(delivery, site), str(step)).killed(), step
        place = CommandPlace(seqno(2), 2 * nth)
        assert _position(site) == SubscriptionPosition(seqno(1), applied_before=place)
    assert ChildJob(DeliveryOfCommands.run, _rest(delivery, site)).result().error is None
    _assert_delivered(site)


def test_a_snapshot_alters_the_table_that_a_killed_delivery_was_about_to_alter(site: Site) -> None:
    # A snapshot makes the changes at the watermark, which is before the change that the delivery had begun.
    delivery = _swapping(site)
    assert ChildJob(DeliveryOfCommands.run, delivery, str(Failpoint.CHANGE_BEGUN)).killed()
    position = _position(site)
    with dialect_of(site.connection).applier(site.connection, KEY, site.articles) as applier:
        applier.begin(position.watermark, finishing=position.unfinished)
        applier.apply(list(_changes_at(position.watermark, delivery, site)))
        applier.commit(position.watermark)
    assert site.definitions() == {"public.vendor": max(site.articles)}
    assert list(site.execute("SELECT id, b, a, total FROM vendor ORDER BY id")) == [
        (1, "one", "ONE", Decimal("0.50")),
        (2, "two", "TWO", Decimal("0.50")),
    ]


def _changes_at(watermark: bytes, delivery: DeliveryOfCommands, site: Site) -> Iterator[SchemaStep]:
    """Yield the delivery's schema changes as a snapshot applies them."""
    for row in delivery.commands.filter(pc.equal(delivery.commands["operation"], int(Operation.SCHEMA))).to_pylist():
        made = SchemaChange.model_validate_json(row["after"])
        command = pa.Table.from_pylist([{**row, "xact_seqno": watermark, "command_id": 0}], ROW_LAYOUT)
        assert made.new_article_id is not None
        yield SchemaStep(command, made, site.articles[made.article_id], site.articles[made.new_article_id])


def test_a_job_stopped_within_a_change_ends_fenced_where_another_one_made_it(site: Site) -> None:
    delivery = _swapping(site)
    with ChildJob(DeliveryOfCommands.run, delivery, f"{Failpoint.CHANGE_BEGUN}/stop") as stopped:
        stopped.wait_until_it_stands_still()
        other = _rest(delivery, site)
        assert other.run().error is None
        stopped.go_on()
        error = stopped.result().error
    assert error is not None
    assert error.kind is ErrorKind.FENCED
    _assert_delivered(site)


def test_a_statement_that_a_killed_job_left_to_the_server_is_waited_for(site: Site, mariadb: MariaDbServer) -> None:
    # The table's shape is read only once that statement has ended: two columns would swap twice.
    delivery = _swapping(site)
    delivery_before = site.delivery(delivery.commands.slice(0, 1), transactions=1)
    assert delivery_before.run().error is None
    with (
        mariadb.connect(site.connection.database) as session,
        session.cursor() as reader,
        ThreadPoolExecutor(1) as threads,
    ):
        reader.execute("START TRANSACTION")
        reader.execute("SELECT * FROM vendor")
        first = ChildJob(DeliveryOfCommands.run, _rest(delivery, site))
        wait_until(lambda: _waits(site, "ALTER TABLE"))
        first.kill()
        second = threads.submit(_rest(delivery, site).run)
        wait_until(lambda: _waits(site, "SELECT GET_LOCK"))
        reader.execute("COMMIT")
        result = second.result(timeout=100)
    assert result.error is None, result.error
    _assert_delivered(site)


def _waits(site: Site, statement: str) -> bool:
    found = site.execute(
        "SELECT COUNT(*) FROM information_schema.processlist "
        f"WHERE db = DATABASE() AND info LIKE '{statement}%' AND state <> ''"
    )
    return found != [(0,)]
