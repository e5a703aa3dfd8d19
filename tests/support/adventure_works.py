"""Adventure Works' schema Purchasing: its five tables, the files of their rows, and the keys that rows have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Any

import psycopg
from psycopg import sql

from support.checkout import CHECKOUT

FOLDER = CHECKOUT.parent / "shared" / "data" / "adventureworks"
LARGEST_TRANSACTION = 500

Session = psycopg.Connection[tuple[Any, ...]]

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
        """Yield the fields that are loaded; an empty one is NULL."""
        with (FOLDER / self.name).open(encoding="utf-8") as lines:
            for line in lines:
                fields = line.rstrip("\n").split("\t")
                yield [field or None for field, name in zip(fields, self.columns, strict=True) if name]

    def computed(self, keys: int) -> set[tuple[str, ...]]:
        """Return the first `keys` fields and those that the table computes, as the file has them."""
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
    """Load the files in transactions of 1 to 500 rows; return the number of rows."""
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


def keys(session: Session, table: str, column: str) -> list[int]:
    """Return the keys in ascending order."""
    names = sql.SQL("SELECT DISTINCT {0} FROM {1} ORDER BY {0}").format(
        sql.Identifier(column), sql.Identifier("purchasing", table)
    )
    return [int(value) for (value,) in session.execute(names)]


def next_key(session: Session, table: str, column: str) -> int:
    """Return the key after the largest, 1 in an empty table."""
    names = sql.SQL("SELECT coalesce(max({}), 0) + 1 FROM {}").format(
        sql.Identifier(column), sql.Identifier("purchasing", table)
    )
    return int(session.execute(names).fetchall()[0][0])


def some(random: Random, ids: Sequence[int], limit: int) -> list[int]:
    """Return at most so many of them, at random."""
    return random.sample(ids, k=min(limit, len(ids)))
