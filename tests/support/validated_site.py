"""Publications that are validated: of `item`, whose row filter leaves some rows out, and of a table whose columns have
each form in which values are compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.databases import Databases
from support.site import Site
from support.subscribers import STATEMENTS, Rows
from tranrepl.connections import Connection
from tranrepl.jobs.results import JobResult
from tranrepl.jobs.validation_report import ArticleValidation

COLUMNS = "id int PRIMARY KEY, region int NOT NULL, name text, note text, price numeric(9, 2), body text"


def article_of(result: JobResult, source: str = "public.item") -> ArticleValidation:
    return next(it for it in compared_articles(result) if it.article == source)


def named(article: ArticleValidation) -> set[tuple[str, str, tuple[str, ...]]]:
    """Return the difference, the key and the differing columns of each row that was found."""
    return {(it.difference.value, ", ".join(map(str, it.key.values())), it.columns) for it in article.rows}


def validated_site(databases: Databases, tmp_path: Path, spark: Any) -> Site:
    return Site(databases, tmp_path / "store", [{"source": "public.item", "filter": "region <> 0"}], spark)


def compared_articles(result: JobResult) -> tuple[ArticleValidation, ...]:
    assert result.validation is not None, result.error
    return result.validation.articles


def deliver_once(site: Site, rows: int = 1) -> None:
    """Set up and deliver so many items."""
    site.at_publisher(f"CREATE TABLE item ({COLUMNS})")
    site.set_up()
    site.at_publisher(f"INSERT INTO item SELECT g, 1, 'name', g FROM generate_series(1, {rows}) g")
    site.run()


Difference = tuple[str, str | None, tuple[str, ...]]
"""What differs, the value of the key's column `code`, and the columns."""

TABLE = """
CREATE TABLE vendor (
    code bytea, place text, name varchar(40), credit numeric(10,2), share numeric, active boolean, opened date,
    called time, seen timestamptz, changed timestamp(3), rate double precision, quota real, note text, logo bytea,
    tags text[], details jsonb, mark uuid, kind char(4), PRIMARY KEY (place, code)
)
"""
ROWS = 102
_ROWS = r"""
INSERT INTO vendor SELECT decode(to_hex(n + 4096), 'hex'), CASE WHEN n % 2 = 0 THEN 'Zürich|~' ELSE '😀 \' END,
    'Vendor ' || n, n / 4.0, n / 8.0, n % 2 = 0, date '2024-02-29' + n, time '00:00' + n * interval '1.5 s',
    timestamptz '2024-01-01 00:00:00.000001+02' + n * interval '1 h', timestamp '2024-01-01 00:00:00.001',
    CASE n % 4 WHEN 0 THEN n * 1e20 WHEN 1 THEN n / 3e9 WHEN 2 THEN -n * 1000 ELSE n / 7.0 END,
    n / 10.0::real, CASE WHEN n % 3 > 0 THEN E'a\tb ' || n END, '\x00ff', ARRAY['a', NULL], '{"a": 1.0}',
    ('00000000-0000-0000-0000-' || lpad(n::text, 12, '0'))::uuid, 'k'
FROM generate_series(1, 100) n
"""
_NULLS = r"INSERT INTO vendor (code, place) VALUES ('', ''), ('\x01', '')"


@dataclass(frozen=True, slots=True)
class Subscriber:
    """Where the table goes."""

    connection: Connection
    schema: str
    execute: Callable[..., Rows]
    binary: str
    """A constant of bytes; `{}` stands for their hexadecimal digits."""
    changes: Mapping[str, str]
    """An expression of another value for each column."""


@dataclass(frozen=True, slots=True)
class ComparedVendor:
    site: Site
    subscriber: Subscriber

    def differences(self, **options: Any) -> list[Difference]:
        """Validate, and return what was found."""
        return _found(self.site.validate(**options))

    def plant_differences(self) -> list[Difference]:
        """Take a row away, add one, and change each column in a row of its own; return what is to be found."""
        planted: list[Difference] = [("extra", "\\xffff", ()), ("missing", "\\x1001", ())]
        statements = [
            f"DELETE FROM vendor WHERE code = {self._binary('1001')}",
            f"INSERT INTO vendor (code, place) VALUES ({self._binary('FFFF')}, 'new')",
        ]
        for at, (column, value) in enumerate(self.subscriber.changes.items()):
            code = f"{4096 + 10 + at * 3:x}"
            planted.append(("different", f"\\x{code}", (column,)))
            statements.append(f"UPDATE vendor SET {column} = {value} WHERE code = {self._binary(code)}")
        self.subscriber.execute(*statements)
        return sorted(planted)

    def run_script(self, script: Path) -> None:
        statements = script.read_text(encoding="utf-8").split(";\n")
        self.subscriber.execute(*(it for it in statements if it.strip()))

    def _binary(self, digits: str) -> str:
        return self.subscriber.binary.format(digits)


def compared_vendor(databases: Databases, store: Path, spark: Any, subscriber: Subscriber) -> ComparedVendor:
    """Set up the article, and insert its rows at the Publisher; nothing is delivered yet."""
    connection_id = subscriber.connection.connection_id
    site = Site(
        databases,
        store,
        [{"source": "public.vendor", "destination": f"{subscriber.schema}.vendor", **STATEMENTS}],
        spark,
        [{"name": "reporting", "connection": connection_id}],
    )
    site.connections[connection_id] = subscriber.connection
    site.at_publisher(TABLE)
    site.set_up()
    site.at_publisher(_ROWS, _NULLS)
    return ComparedVendor(site, subscriber)


def _found(result: JobResult) -> list[Difference]:
    assert result.validation is not None, result.error
    return sorted((it.difference.value, it.key["code"], it.columns) for it in result.validation.articles[0].rows)
