"""A random purchasing department at work on Adventure Works' tables.

The same seed makes the same transactions. Rows are found and changed by set-based statements, so that a transaction of
500 rows takes a few statements.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import psycopg
from psycopg import sql

from support.adventure_works import LARGEST_TRANSACTION, Session, keys, next_key, some


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
                random.choice(_ACTIONS)(session, random, limit)
                raise psycopg.Rollback
        left -= random.choice(_ACTIONS)(session, random, limit)
    return size - left


Action = Callable[[Session, Random, int], int]
"""Changes at most so many rows, and says how many."""


def _insert_vendors(session: Session, random: Random, limit: int) -> int:
    return session.execute(
        "INSERT INTO purchasing.vendor SELECT n, 'NEW' || n, 'Vendor ' || n, 1 + n %% 5, n %% 2 = 0, n %% 3 > 0, "
        "CASE n %% 3 WHEN 0 THEN 'https://vendor.example/' || repeat('é', n %% 90) WHEN 1 THEN '' END, "
        "timestamp '2025-01-01' + n * interval '1 minute' "
        "FROM generate_series(%(first)s::int, %(first)s + %(rows)s - 1) n",
        {"first": next_key(session, "vendor", "vendor_id"), "rows": min(limit, 20)},
    ).rowcount


def _insert_orders(session: Session, random: Random, limit: int) -> int:
    lines = random.randint(0, 4)
    orders = limit // (lines + 1)
    first = next_key(session, "purchase_order_header", "purchase_order_id")
    values = {
        "first": first,
        "last": first + orders - 1,
        "lines": lines,
        "seed": random.randint(1, 9999),
        "vendors": random.choices(keys(session, "vendor", "vendor_id"), k=20),
        "methods": random.choices(keys(session, "ship_method", "ship_method_id"), k=20),
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
            "vendor": random.choice(keys(session, "vendor", "vendor_id")),
            "first": next_key(session, "product_vendor", "product_id"),
            "rows": limit,
        },
    ).rowcount


def _insert_ship_method(session: Session, random: Random, limit: int) -> int:
    return session.execute(
        "INSERT INTO purchasing.ship_method VALUES (%(id)s, 'METHOD ' || %(id)s, 1.5, 0.0001, "
        "md5(%(id)s::text)::uuid, '2025-05-01')",
        {"id": next_key(session, "ship_method", "ship_method_id")},
    ).rowcount


def _update_vendors(session: Session, random: Random, limit: int) -> int:
    return session.execute(
        "UPDATE purchasing.vendor SET credit_rating = 1 + (credit_rating + %(step)s) %% 5, purchasing_web_service_url ="
        " CASE WHEN purchasing_web_service_url IS NULL THEN 'https://' || vendor_id "
        "WHEN purchasing_web_service_url = '' THEN NULL ELSE '' END, name = left(name || ' Ltd', 50) "
        "WHERE vendor_id = ANY(%(ids)s)",
        {"step": random.randint(0, 3), "ids": some(random, keys(session, "vendor", "vendor_id"), limit)},
    ).rowcount


def _update_ship_methods(session: Session, random: Random, limit: int) -> int:
    return session.execute(
        "UPDATE purchasing.ship_method SET ship_rate = ship_rate + 0.0001, rowguid = md5(rowguid::text)::uuid, "
        "name = ship_method_id || ' ' || %(word)s WHERE ship_method_id = ANY(%(ids)s)",
        {"word": random.randint(0, 99), "ids": some(random, keys(session, "ship_method", "ship_method_id"), limit)},
    ).rowcount


def _update_products(session: Session, random: Random, limit: int) -> int:
    return session.execute(
        "UPDATE purchasing.product_vendor SET last_receipt_cost = standard_price * 2, last_receipt_date = NULL, "
        "on_order_qty = CASE WHEN on_order_qty IS NULL THEN 7 END WHERE (product_id, vendor_id) IN "
        "(SELECT product_id, vendor_id FROM purchasing.product_vendor WHERE product_id >= %s ORDER BY 1, 2 LIMIT %s)",
        [random.choice(keys(session, "product_vendor", "product_id")), limit],
    ).rowcount


def _update_orders(session: Session, random: Random, limit: int) -> int:
    return session.execute(
        "UPDATE purchasing.purchase_order_header SET status = 4, sub_total = sub_total + 0.0001, "
        "ship_date = CASE WHEN ship_date IS NULL THEN timestamp '2025-06-01 12:00:00.125' END, "
        "revision_number = (revision_number + 1) %% 100 WHERE purchase_order_id = ANY(%s)",
        [_orders(session, random, limit)],
    ).rowcount


def _update_unpublished(session: Session, random: Random, limit: int) -> int:
    """Change a column that the article leaves out."""
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
    """Change part of the key, with another column in the same statement."""
    return session.execute(
        "UPDATE purchasing.purchase_order_detail SET purchase_order_detail_id = purchase_order_detail_id + 100000, "
        "unit_price = unit_price + 1 WHERE purchase_order_id = ANY(%s)",
        [_orders_of(session, random, limit)],
    ).rowcount


def _renumber_orders(session: Session, random: Random, limit: int) -> int:
    """Change a key that the Publisher's foreign key carries on to the lines."""
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
    return session.execute(statement, [next_key(session, table, key), ids]).rowcount


def _replace_products(session: Session, random: Random, limit: int) -> int:
    """Delete and insert the same keys within one transaction."""
    gone = session.execute(
        "DELETE FROM purchasing.product_vendor WHERE (product_id, vendor_id) IN (SELECT product_id, vendor_id "
        "FROM purchasing.product_vendor WHERE product_id >= %s ORDER BY 1, 2 LIMIT %s) RETURNING product_id, vendor_id",
        [random.choice(keys(session, "product_vendor", "product_id")), min(limit // 2, 50)],
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


_ACTIONS: tuple[Action, ...] = (
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


def _orders(session: Session, random: Random, limit: int) -> list[int]:
    return some(random, keys(session, "purchase_order_header", "purchase_order_id"), limit)


def _orders_of(session: Session, random: Random, lines: int) -> list[int]:
    """Return orders with at most so many lines together, from a random one on."""
    orders = keys(session, "purchase_order_header", "purchase_order_id")
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
    """Return vendors to whom no row refers."""
    rows = session.execute(
        "SELECT vendor_id FROM purchasing.vendor v "
        "WHERE NOT EXISTS (SELECT FROM purchasing.purchase_order_header h WHERE h.vendor_id = v.vendor_id) "
        "AND NOT EXISTS (SELECT FROM purchasing.product_vendor p WHERE p.vendor_id = v.vendor_id) "
        "ORDER BY vendor_id DESC LIMIT %s",
        [limit],
    )
    return [int(vendor) for (vendor,) in rows]
