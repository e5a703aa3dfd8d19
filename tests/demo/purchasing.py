"""A Publisher's purchasing department: vendors and purchase orders, and the transactions that people make there.

The tables follow Microsoft's Adventure Works sample; the rows are made up, and the same for the same seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from random import Random

import psycopg

from support.adventure_works import Session, keys, next_key, some

Action = Callable[[Session, Random], None]

SCHEMA = """
CREATE SCHEMA purchasing;

CREATE TABLE purchasing.vendor (
    vendor_id integer PRIMARY KEY,
    account_number varchar(15) NOT NULL UNIQUE,
    name varchar(50) NOT NULL,
    credit_rating smallint NOT NULL CHECK (credit_rating BETWEEN 1 AND 5),
    preferred_vendor_status boolean NOT NULL DEFAULT true,
    active_flag boolean NOT NULL DEFAULT true,
    purchasing_web_service_url varchar(1024),
    modified_date timestamp NOT NULL
);

CREATE TABLE purchasing.purchase_order_header (
    purchase_order_id integer PRIMARY KEY,
    status smallint NOT NULL DEFAULT 1,
    vendor_id integer NOT NULL REFERENCES purchasing.vendor,
    order_date timestamp NOT NULL,
    ship_date timestamp,
    sub_total numeric(19, 4) NOT NULL,
    tax_amt numeric(19, 4) NOT NULL,
    freight numeric(19, 4) NOT NULL,
    total_due numeric(19, 4) GENERATED ALWAYS AS (sub_total + tax_amt + freight) STORED,
    modified_date timestamp NOT NULL
);

CREATE TABLE purchasing.purchase_order_detail (
    purchase_order_id integer NOT NULL REFERENCES purchasing.purchase_order_header,
    purchase_order_detail_id integer NOT NULL,
    due_date timestamp NOT NULL,
    order_qty smallint NOT NULL,
    product_id integer NOT NULL,
    unit_price numeric(19, 4) NOT NULL,
    line_total numeric(19, 4) GENERATED ALWAYS AS (order_qty * unit_price) STORED,
    received_qty numeric(8, 2) NOT NULL,
    rejected_qty numeric(8, 2) NOT NULL,
    stocked_qty numeric(9, 2) GENERATED ALWAYS AS (received_qty - rejected_qty) STORED,
    modified_date timestamp NOT NULL,
    PRIMARY KEY (purchase_order_id, purchase_order_detail_id)
);
"""

_OPENING_DAY = datetime(2024, 1, 2, 9, 0)
_VENDORS_AT_FIRST = 100
_ORDERS_AT_FIRST = 300
OPENING_TRANSACTIONS = _VENDORS_AT_FIRST + _ORDERS_AT_FIRST
_ROLLED_BACK_EVERY = 10
_ADJECTIVES = ("Alpine", "Blue", "Crestline", "Desert", "Élan", "First", "Green", "Harbour", "Inland", "Jura")
_NOUNS = ("Bicycles", "Bearings", "Chains", "Frames", "Gears", "Helmets", "Pedals", "Saddles", "Tyres", "Wheels")


def transactions(session: Session, random: Random, count: int) -> Iterator[None]:
    """Make `count` transactions of one to twenty actions, one by one; every tenth is rolled back."""
    for number in range(1, count + 1):
        with session.transaction():
            for action in random.choices(_ACTIONS, k=random.randint(1, 20)):
                action(session, random)
            if number % _ROLLED_BACK_EVERY == 0:
                raise psycopg.Rollback
        yield


def opening_rows(session: Session, random: Random) -> Iterator[None]:
    """Insert vendors and orders of the first day, a transaction each."""
    for action in [insert_vendor] * _VENDORS_AT_FIRST + [insert_order] * _ORDERS_AT_FIRST:
        with session.transaction():
            action(session, random)
        yield


def insert_vendor(session: Session, random: Random) -> None:
    _insert_vendor(session, random, next_key(session, "vendor", "vendor_id"))


def rerate_vendors(session: Session, random: Random) -> None:
    """Change some vendors' ratings, and remove their web service."""
    vendors = some(random, keys(session, "vendor", "vendor_id"), 3)
    session.execute(
        "UPDATE purchasing.vendor SET credit_rating = %s, purchasing_web_service_url = NULL, modified_date = %s "
        "WHERE vendor_id = ANY(%s)",
        [random.randint(1, 5), _moment(random), vendors],
    )


def renumber_vendor(session: Session, random: Random) -> None:
    """Change the key of a vendor without orders."""
    for vendor in _an_idle_vendor(session, random):
        session.execute(
            "UPDATE purchasing.vendor SET vendor_id = %s WHERE vendor_id = %s",
            [next_key(session, "vendor", "vendor_id"), vendor],
        )


def replace_vendor(session: Session, random: Random) -> None:
    """Delete a vendor without orders, and insert another with its key and account number in the same transaction."""
    for vendor in _an_idle_vendor(session, random):
        session.execute("DELETE FROM purchasing.vendor WHERE vendor_id = %s", [vendor])
        _insert_vendor(session, random, vendor)


def insert_order(session: Session, random: Random) -> None:
    order = next_key(session, "purchase_order_header", "purchase_order_id")
    vendor = random.choice(keys(session, "vendor", "vendor_id"))
    placed = _moment(random)
    lines = [_line(order, number, placed, random) for number in range(1, random.randint(2, 6))]
    session.execute(
        "INSERT INTO purchasing.purchase_order_header "
        "(purchase_order_id, vendor_id, order_date, sub_total, tax_amt, freight, modified_date) "
        "VALUES (%s, %s, %s, %s, %s, %s, %s)",
        [order, vendor, placed, _price(random, 5000), _price(random, 400), _price(random, 100), placed],
    )
    with session.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO purchasing.purchase_order_detail "
            "(purchase_order_id, purchase_order_detail_id, due_date, order_qty, product_id, unit_price, "
            "received_qty, rejected_qty, modified_date) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)",
            lines,
        )


def receive_order(session: Session, random: Random) -> None:
    """Receive goods: update every line of an order and its header."""
    for order in _an_order(session, random):
        arrived = _moment(random)
        session.execute(
            "UPDATE purchasing.purchase_order_detail "
            "SET received_qty = order_qty, rejected_qty = %s, modified_date = %s WHERE purchase_order_id = %s",
            [random.randint(0, 2), arrived, order],
        )
        session.execute(
            "UPDATE purchasing.purchase_order_header SET status = 4, ship_date = %s, modified_date = %s "
            "WHERE purchase_order_id = %s",
            [arrived, arrived, order],
        )


def renumber_lines(session: Session, random: Random) -> None:
    """Change the key of every line of an order."""
    for order in _an_order(session, random):
        session.execute(
            "UPDATE purchasing.purchase_order_detail SET purchase_order_detail_id = purchase_order_detail_id + 1000 "
            "WHERE purchase_order_id = %s",
            [order],
        )


def cancel_order(session: Session, random: Random) -> None:
    for order in _an_order(session, random):
        session.execute("DELETE FROM purchasing.purchase_order_detail WHERE purchase_order_id = %s", [order])
        session.execute("DELETE FROM purchasing.purchase_order_header WHERE purchase_order_id = %s", [order])


_ACTIONS: tuple[Action, ...] = (
    insert_vendor,
    rerate_vendors,
    renumber_vendor,
    replace_vendor,
    insert_order,
    insert_order,
    receive_order,
    renumber_lines,
    cancel_order,
)


def _insert_vendor(session: Session, random: Random, vendor: int) -> None:
    name = f"{random.choice(_ADJECTIVES)} {random.choice(_NOUNS)}"
    session.execute(
        "INSERT INTO purchasing.vendor VALUES (%s, %s, %s, %s, %s, %s, %s, %s)",
        [
            vendor,
            f"V{vendor:07}",
            name,
            random.randint(1, 5),
            random.random() < 0.8,
            random.random() < 0.9,
            None if random.random() < 0.5 else f"https://vendor{vendor}.example/orders",
            _moment(random),
        ],
    )


def _line(order: int, number: int, placed: datetime, random: Random) -> tuple[object, ...]:
    due = placed + timedelta(days=14)
    return (order, number, due, random.randint(1, 500), random.randint(1, 999), _price(random, 90), 0, 0, placed)


def _price(random: Random, below: int) -> Decimal:
    return Decimal(random.randrange(10_000, below * 10_000)) / 10_000


def _moment(random: Random) -> datetime:
    return _OPENING_DAY + timedelta(seconds=random.randrange(365 * 86_400), milliseconds=random.randrange(1000))


def _an_idle_vendor(session: Session, random: Random) -> list[int]:
    """Return a vendor without orders, if there is one."""
    rows = session.execute(
        "SELECT vendor_id FROM purchasing.vendor v WHERE NOT EXISTS "
        "(SELECT FROM purchasing.purchase_order_header h WHERE h.vendor_id = v.vendor_id) ORDER BY 1"
    ).fetchall()
    return some(random, [int(str(vendor)) for (vendor,) in rows], 1)


def _an_order(session: Session, random: Random) -> list[int]:
    """Return an order, if there is one."""
    return some(random, keys(session, "purchase_order_header", "purchase_order_id"), 1)
