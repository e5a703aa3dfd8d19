"""Adventure Works' schema Purchasing: its five tables, its files, and a random purchasing department at work on them.

The same seed makes the same transactions. Rows are found and changed by set-based statements, so that a transaction of
500 rows takes a few statements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Any

import psycopg
from psycopg import sql

from support.checkout import CHECKOUT

Session = psycopg.Connection[tuple[Any, ...]]

FOLDER = CHECKOUT.parent / "shared" / "data" / "adventureworks"
LARGEST_TRANSACTION = 500

SCHEMA = """
CREATE SCHEMA purchasing;

CREATE TABLE purchasing.vendor (
    vendor_id integer PRIMARY KEY,
    account_number varchar(15) NOT NULL UNIQUE,
    name varchar(50) NOT NULL,
    credit_rating smallint NOT NULL CHECK (credit_rating BETWEEN 1 AND 5),
    preferred_vendor_status boolean NOT NULL,
    active_flag boolean NOT NULL,
    purchasing_web_service_url varchar(1024),
    modified_date timestamp(3) NOT NULL
);

CREATE TABLE purchasing.ship_method (
    ship_method_id integer PRIMARY KEY,
    name varchar(50) NOT NULL UNIQUE,
    ship_base numeric(19, 4) NOT NULL,
    ship_rate numeric(19, 4) NOT NULL,
    rowguid uuid NOT NULL UNIQUE,
    modified_date timestamp(3) NOT NULL
);

CREATE TABLE purchasing.product_vendor (
    product_id integer,
    vendor_id integer REFERENCES purchasing.vendor,
    average_lead_time integer NOT NULL,
    standard_price numeric(19, 4) NOT NULL,
    last_receipt_cost numeric(19, 4),
    last_receipt_date timestamp(3),
    min_order_qty integer NOT NULL,
    max_order_qty integer NOT NULL,
    on_order_qty integer,
    unit_measure_code character(3) NOT NULL,
    modified_date timestamp(3) NOT NULL,
    PRIMARY KEY (product_id, vendor_id)
);

CREATE TABLE purchasing.purchase_order_header (
    purchase_order_id integer PRIMARY KEY,
    revision_number smallint NOT NULL,
    status smallint NOT NULL,
    employee_id integer NOT NULL,
    vendor_id integer NOT NULL REFERENCES purchasing.vendor,
    ship_method_id integer NOT NULL REFERENCES purchasing.ship_method,
    order_date timestamp(3) NOT NULL,
    ship_date timestamp(3),
    sub_total numeric(19, 4) NOT NULL,
    tax_amt numeric(19, 4) NOT NULL,
    freight numeric(19, 4) NOT NULL,
    total_due numeric(19, 4) GENERATED ALWAYS AS (sub_total + tax_amt + freight) STORED,
    modified_date timestamp(3) NOT NULL
);

CREATE TABLE purchasing.purchase_order_detail (
    purchase_order_id integer REFERENCES purchasing.purchase_order_header ON UPDATE CASCADE,
    purchase_order_detail_id integer,
    due_date timestamp(3) NOT NULL,
    order_qty smallint NOT NULL,
    product_id integer NOT NULL,
    unit_price numeric(19, 4) NOT NULL,
    line_total numeric(19, 4) GENERATED ALWAYS AS (order_qty * unit_price) STORED,
    received_qty numeric(8, 2) NOT NULL,
    rejected_qty numeric(8, 2) NOT NULL,
    stocked_qty numeric(9, 2) GENERATED ALWAYS AS (received_qty - rejected_qty) STORED,
    modified_date timestamp(3) NOT NULL,
    PRIMARY KEY (purchase_order_id, purchase_order_detail_id)
);
"""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file and the columns of its fields; None for a field that the table computes."""

    name: str
    table: str
    columns: tuple[str | None, ...]

    def rows(self) -> Iterator[list[str | None]]:
        """The fields that are loaded; an empty one is NULL."""
        with (FOLDER / self.name).open(encoding="utf-8") as lines:
            for line in lines:
                fields = line.rstrip("\n").split("\t")
                yield [field or None for field, name in zip(fields, self.columns, strict=True) if name]

    def computed(self, keys: int) -> set[tuple[str, ...]]:
        """The first `keys` fields and those that the table computes, as the file has them."""
        places = [place for place, name in enumerate(self.columns) if name is None or place < keys]
        with (FOLDER / self.name).open(encoding="utf-8") as lines:
            split = (line.rstrip("\n").split("\t") for line in lines)
            return {tuple(fields[place] for place in places) for fields in split}


def _columns(text: str) -> tuple[str | None, ...]:
    return tuple(None if name == "-" else name for name in text.split())


VENDORS = DataFile(
    "Vendor.csv",
    "vendor",
    _columns(
        "vendor_id account_number name credit_rating preferred_vendor_status active_flag "
        "purchasing_web_service_url modified_date"
    ),
)
SHIP_METHODS = DataFile(
    "ShipMethod.csv", "ship_method", _columns("ship_method_id name ship_base ship_rate rowguid modified_date")
)
PRODUCTS = DataFile(
    "ProductVendor.csv",
    "product_vendor",
    _columns(
        "product_id vendor_id average_lead_time standard_price last_receipt_cost last_receipt_date min_order_qty "
        "max_order_qty on_order_qty unit_measure_code modified_date"
    ),
)
HEADERS = DataFile(
    "PurchaseOrderHeader.csv",
    "purchase_order_header",
    _columns(
        "purchase_order_id revision_number status employee_id vendor_id ship_method_id order_date ship_date "
        "sub_total tax_amt freight - modified_date"
    ),
)
DETAILS = DataFile(
    "PurchaseOrderDetail.csv",
    "purchase_order_detail",
    _columns(
        "purchase_order_id purchase_order_detail_id due_date order_qty product_id unit_price - received_qty "
        "rejected_qty - modified_date"
    ),
)
FILES = (VENDORS, SHIP_METHODS, PRODUCTS, HEADERS, DETAILS)


def load(session: Session, random: Random) -> int:
    """Load the files in transactions of 1 to 500 rows; the number of rows."""
    count = 0
    for file in FILES:
        rows = file.rows()
        while chunk := list(islice(rows, random.randint(1, LARGEST_TRANSACTION))):
            with session.transaction():
                _copy(session, file, chunk)
            count += len(chunk)
    return count


def _copy(session: Session, file: DataFile, rows: Sequence[list[str | None]]) -> None:
    names = sql.SQL(", ").join(sql.Identifier(name) for name in file.columns if name)
    statement = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier("purchasing", file.table), names)
    with session.cursor().copy(statement) as copy:
        for row in rows:
            copy.write_row(row)


@dataclass(slots=True)
class Work:
    """What a round of transactions did."""

    transactions: int = 0
    rolled_back: int = 0
    rows: int = 0


def work(session: Session, random: Random, rows: int) -> Work:
    """Change about `rows` rows in transactions of 1 to 500. Every seventh is rolled back; so are some savepoints."""
    done = Work()
    while done.rows < rows:
        size = random.choice([random.randint(1, 10), random.randint(1, LARGEST_TRANSACTION)])
        done.transactions += 1
        with session.transaction():
            changed = _change(session, random, size)
            if done.transactions % 7 == 0:
                done.rolled_back += 1
                raise psycopg.Rollback
            done.rows += changed
    return done


def _change(session: Session, random: Random, size: int) -> int:
    """Change at most `size` rows."""
    left = size
    for _ in range(2 * size):
        if left == 0:
            break
        limit = random.randint(1, left)
        if random.random() < 0.1:
            with session.transaction():
                random.choice(ACTIONS)(session, random, limit)
                raise psycopg.Rollback
        left -= random.choice(ACTIONS)(session, random, limit)
    return size - left


Action = Callable[[Session, Random, int], int]
"""Changes at most so many rows, and says how many."""


def _insert_vendors(session: Session, random: Random, limit: int) -> int:
    return session.execute(
        "INSERT INTO purchasing.vendor SELECT n, 'NEW' || n, 'Vendor ' || n, 1 + n %% 5, n %% 2 = 0, n %% 3 > 0, "
        "CASE n %% 3 WHEN 0 THEN 'https://vendor.example/' || repeat('é', n %% 90) WHEN 1 THEN '' END, "
        "timestamp '2025-01-01' + n * interval '1 minute' "
        "FROM generate_series(%(first)s::int, %(first)s + %(rows)s - 1) n",
        {"first": _next(session, "vendor", "vendor_id"), "rows": min(limit, 20)},
    ).rowcount


def _insert_orders(session: Session, random: Random, limit: int) -> int:
    lines = random.randint(0, 4)
    orders = limit // (lines + 1)
    first = _next(session, "purchase_order_header", "purchase_order_id")
    values = {
        "first": first,
        "last": first + orders - 1,
        "lines": lines,
        "seed": random.randint(1, 9999),
        "vendors": random.choices(_ids(session, "vendor", "vendor_id"), k=20),
        "methods": random.choices(_ids(session, "ship_method", "ship_method_id"), k=20),
    }
    headers = session.execute(
        "INSERT INTO purchasing.purchase_order_header (purchase_order_id, revision_number, status, employee_id, "
        "vendor_id, ship_method_id, order_date, ship_date, sub_total, tax_amt, freight, modified_date) "
        "SELECT n, 1, 1 + n %% 4, 250 + n %% 9, (%(vendors)s::int[])[1 + n %% 20], (%(methods)s::int[])[1 + n %% 20], "
        "timestamp '2025-02-01' + n * interval '1 second', NULL, (n * %(seed)s %% 99999) / 7.0, (n %% 999) / 13.0, "
        "n %% 50, timestamp '2025-02-01' FROM generate_series(%(first)s::int, %(last)s) n",
        values,
    ).rowcount
    details = session.execute(
        "INSERT INTO purchasing.purchase_order_detail (purchase_order_id, purchase_order_detail_id, due_date, "
        "order_qty, product_id, unit_price, received_qty, rejected_qty, modified_date) "
        "SELECT n, line, timestamp '2025-03-01', 1 + (n + line) %% 500, line, ((n + line) * %(seed)s %% 9999) / 11.0, "
        "(n + line) %% 500, line, timestamp '2025-02-01' "
        "FROM generate_series(%(first)s::int, %(last)s) n, generate_series(1, %(lines)s) line",
        values,
    ).rowcount
    return headers + details


def _insert_products(session: Session, random: Random, limit: int) -> int:
    return session.execute(
        "INSERT INTO purchasing.product_vendor SELECT n, %(vendor)s, n %% 30, n / 3.0, NULL, NULL, 1, 100 + n, "
        "nullif(n %% 4, 0), (ARRAY['CS ', 'EA', 'z'])[1 + n %% 3], timestamp '2025-04-01' "
        "FROM generate_series(%(first)s::int, %(first)s + %(rows)s - 1) n",
        {
            "vendor": random.choice(_ids(session, "vendor", "vendor_id")),
            "first": _next(session, "product_vendor", "product_id"),
            "rows": limit,
        },
    ).rowcount


def _insert_ship_method(session: Session, random: Random, limit: int) -> int:
    return session.execute(
        "INSERT INTO purchasing.ship_method VALUES (%(id)s, 'METHOD ' || %(id)s, 1.5, 0.0001, "
        "md5(%(id)s::text)::uuid, '2025-05-01')",
        {"id": _next(session, "ship_method", "ship_method_id")},
    ).rowcount


def _update_vendors(session: Session, random: Random, limit: int) -> int:
    return session.execute(
        "UPDATE purchasing.vendor SET credit_rating = 1 + (credit_rating + %(step)s) %% 5, purchasing_web_service_url ="
        " CASE WHEN purchasing_web_service_url IS NULL THEN 'https://' || vendor_id "
        "WHEN purchasing_web_service_url = '' THEN NULL ELSE '' END, name = left(name || ' Ltd', 50) "
        "WHERE vendor_id = ANY(%(ids)s)",
        {"step": random.randint(0, 3), "ids": _some(random, _ids(session, "vendor", "vendor_id"), limit)},
    ).rowcount


def _update_ship_methods(session: Session, random: Random, limit: int) -> int:
    return session.execute(
        "UPDATE purchasing.ship_method SET ship_rate = ship_rate + 0.0001, rowguid = md5(rowguid::text)::uuid, "
        "name = ship_method_id || ' ' || %(word)s WHERE ship_method_id = ANY(%(ids)s)",
        {"word": random.randint(0, 99), "ids": _some(random, _ids(session, "ship_method", "ship_method_id"), limit)},
    ).rowcount


def _update_products(session: Session, random: Random, limit: int) -> int:
    return session.execute(
        "UPDATE purchasing.product_vendor SET last_receipt_cost = standard_price * 2, last_receipt_date = NULL, "
        "on_order_qty = CASE WHEN on_order_qty IS NULL THEN 7 END WHERE (product_id, vendor_id) IN "
        "(SELECT product_id, vendor_id FROM purchasing.product_vendor WHERE product_id >= %s ORDER BY 1, 2 LIMIT %s)",
        [random.choice(_ids(session, "product_vendor", "product_id")), limit],
    ).rowcount


def _update_orders(session: Session, random: Random, limit: int) -> int:
    return session.execute(
        "UPDATE purchasing.purchase_order_header SET status = 4, sub_total = sub_total + 0.0001, "
        "ship_date = CASE WHEN ship_date IS NULL THEN timestamp '2025-06-01 12:00:00.125' END, "
        "revision_number = (revision_number + 1) %% 100 WHERE purchase_order_id = ANY(%s)",
        [_orders(session, random, limit)],
    ).rowcount


def _update_unpublished(session: Session, random: Random, limit: int) -> int:
    """Changes of a column that the article leaves out."""
    return session.execute(
        "UPDATE purchasing.purchase_order_header SET employee_id = employee_id + 1 WHERE purchase_order_id = ANY(%s)",
        [_orders(session, random, limit)],
    ).rowcount


def _update_to_the_same(session: Session, random: Random, limit: int) -> int:
    return session.execute(
        "UPDATE purchasing.purchase_order_header SET sub_total = sub_total, ship_date = ship_date "
        "WHERE purchase_order_id = ANY(%s)",
        [_orders(session, random, limit)],
    ).rowcount


def _receive(session: Session, random: Random, limit: int) -> int:
    return session.execute(
        "UPDATE purchasing.purchase_order_detail SET received_qty = order_qty, rejected_qty = %s "
        "WHERE purchase_order_id = ANY(%s)",
        [random.randint(0, 99) / 4, _orders_of(session, random, limit)],
    ).rowcount


def _renumber_lines(session: Session, random: Random, limit: int) -> int:
    """A change of part of the key, with another column in the same statement."""
    return session.execute(
        "UPDATE purchasing.purchase_order_detail SET purchase_order_detail_id = purchase_order_detail_id + 100000, "
        "unit_price = unit_price + 1 WHERE purchase_order_id = ANY(%s)",
        [_orders_of(session, random, limit)],
    ).rowcount


def _renumber_orders(session: Session, random: Random, limit: int) -> int:
    """A key change that the Publisher's foreign key carries on to the lines."""
    orders = _orders_of(session, random, limit // 2)
    lines = session.execute(
        "SELECT count(*) FROM purchasing.purchase_order_detail WHERE purchase_order_id = ANY(%s)", [orders]
    ).fetchall()
    return _renumber(session, "purchase_order_header", "purchase_order_id", orders) + int(lines[0][0])


def _renumber_vendors(session: Session, random: Random, limit: int) -> int:
    return _renumber(session, "vendor", "vendor_id", _idle_vendors(session, limit))


def _renumber(session: Session, table: str, key: str, ids: list[int]) -> int:
    """Give rows the keys after the largest."""
    names = {"table": sql.Identifier("purchasing", table), "key": sql.Identifier(key)}
    statement = sql.SQL(
        "UPDATE {table} t SET {key} = %s + place FROM unnest(%s::int[]) WITH ORDINALITY old(id, place) WHERE {key} = id"
    ).format(**names)
    return session.execute(statement, [_next(session, table, key), ids]).rowcount


def _replace_products(session: Session, random: Random, limit: int) -> int:
    """The same keys go and come within one transaction."""
    gone = session.execute(
        "DELETE FROM purchasing.product_vendor WHERE (product_id, vendor_id) IN (SELECT product_id, vendor_id "
        "FROM purchasing.product_vendor WHERE product_id >= %s ORDER BY 1, 2 LIMIT %s) RETURNING product_id, vendor_id",
        [random.choice(_ids(session, "product_vendor", "product_id")), min(limit // 2, 50)],
    ).fetchall()
    with session.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO purchasing.product_vendor VALUES (%s, %s, 1, 2.5, 3.25, NULL, 4, 5, NULL, 'EA', '2025-07-01')",
            gone,
        )
    return 2 * len(gone)


def _delete_orders(session: Session, random: Random, limit: int) -> int:
    orders = _orders_of(session, random, limit // 2)
    lines = session.execute("DELETE FROM purchasing.purchase_order_detail WHERE purchase_order_id = ANY(%s)", [orders])
    headers = session.execute(
        "DELETE FROM purchasing.purchase_order_header WHERE purchase_order_id = ANY(%s)", [orders]
    )
    return lines.rowcount + headers.rowcount


def _delete_vendors(session: Session, random: Random, limit: int) -> int:
    return session.execute(
        "DELETE FROM purchasing.vendor WHERE vendor_id = ANY(%s)", [_idle_vendors(session, min(limit, 5))]
    ).rowcount


ACTIONS: tuple[Action, ...] = (
    _insert_vendors,
    _insert_orders,
    _insert_products,
    _insert_ship_method,
    _update_vendors,
    _update_ship_methods,
    _update_products,
    _update_orders,
    _update_unpublished,
    _update_to_the_same,
    _receive,
    _renumber_lines,
    _renumber_orders,
    _renumber_vendors,
    _replace_products,
    _delete_orders,
    _delete_vendors,
)


def _ids(session: Session, table: str, column: str) -> list[int]:
    names = sql.SQL("SELECT DISTINCT {0} FROM {1} ORDER BY {0}").format(
        sql.Identifier(column), sql.Identifier("purchasing", table)
    )
    return [int(value) for (value,) in session.execute(names)]


def _next(session: Session, table: str, column: str) -> int:
    names = sql.SQL("SELECT coalesce(max({}), 0) + 1 FROM {}").format(
        sql.Identifier(column), sql.Identifier("purchasing", table)
    )
    return int(session.execute(names).fetchall()[0][0])


def _some(random: Random, ids: Sequence[int], limit: int) -> list[int]:
    return random.sample(ids, k=min(limit, len(ids)))


def _orders(session: Session, random: Random, limit: int) -> list[int]:
    return _some(random, _ids(session, "purchase_order_header", "purchase_order_id"), limit)


def _orders_of(session: Session, random: Random, lines: int) -> list[int]:
    """Orders with at most so many lines together, from a random one on."""
    orders = _ids(session, "purchase_order_header", "purchase_order_id")
    rows = session.execute(
        "SELECT purchase_order_id FROM (SELECT h.purchase_order_id, "
        "sum(greatest(count(d.*), 1)) OVER (ORDER BY h.purchase_order_id) AS lines "
        "FROM purchasing.purchase_order_header h "
        "LEFT JOIN purchasing.purchase_order_detail d USING (purchase_order_id) "
        "WHERE h.purchase_order_id >= %s GROUP BY h.purchase_order_id) o WHERE lines <= %s ORDER BY 1",
        [random.choice(orders), lines],
    )
    return [int(order) for (order,) in rows]


def _idle_vendors(session: Session, limit: int) -> list[int]:
    """Vendors to whom no row refers."""
    rows = session.execute(
        "SELECT vendor_id FROM purchasing.vendor v "
        "WHERE NOT EXISTS (SELECT FROM purchasing.purchase_order_header h WHERE h.vendor_id = v.vendor_id) "
        "AND NOT EXISTS (SELECT FROM purchasing.product_vendor p WHERE p.vendor_id = v.vendor_id) "
        "ORDER BY vendor_id DESC LIMIT %s",
        [limit],
    )
    return [int(vendor) for (vendor,) in rows]
