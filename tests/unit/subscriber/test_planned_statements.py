"""What schema changes run at a table that setup made, without a server to ask."""

from __future__ import annotations

import pytest

from support.command_history import Column, table_description
from support.schema_changes import added, change, dropped, nullable, renamed, retyped
from tranrepl.connections import Connection
from tranrepl.model.article import RegisteredArticle
from tranrepl.settings.publication import Article
from tranrepl.settings.registration import registered_article
from tranrepl.subscriber.registry import dialect_of

ID, NAME, NOTE = Column("id", "integer", key=1), Column("name", "character varying(20)"), Column("note", "text")
TITLE, PAID = Column("title", "character varying(40)"), Column("paid", "numeric(10,2)")

_MARIADB, _MARIADB_ADDED = "ALTER TABLE `sub`.`vendor`", "`paid` DECIMAL(10, 2) NULL DEFAULT (0.50)"


def _article(number: int, *columns: Column) -> RegisteredArticle:
    article = Article.model_validate({"source": "public.vendor", "destination": "sub.vendor"})
    made = registered_article(article, table_description(article.source, columns))
    return made.model_copy(update={"article_id": number})


def _planned(kind: str) -> list[str]:
    old, new = _article(1, ID, NAME, NOTE), _article(2, ID, TITLE, PAID)
    parts = (
        renamed("name", "title"),
        retyped(TITLE),
        dropped("note"),
        added(PAID, "0.50"),
        nullable("title"),
    )
    dialect = dialect_of(Connection(connection_id="subscriber", kind=kind, database="sub"))
    return dialect.planned_statements(change(old, new, *parts), old, new)


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        (
            "postgres",
            [
                'ALTER TABLE "sub"."vendor" RENAME COLUMN "name" TO "title"',
                'ALTER TABLE "sub"."vendor" ALTER COLUMN "title" TYPE character varying(40)',
                'ALTER TABLE "sub"."vendor" DROP COLUMN IF EXISTS "note"',
                'ALTER TABLE "sub"."vendor" ADD COLUMN "paid" numeric(10,2) DEFAULT \'0.50\'',
                'ALTER TABLE "sub"."vendor" ALTER COLUMN "paid" DROP DEFAULT',
                'ALTER TABLE "sub"."vendor" ALTER COLUMN "title" DROP NOT NULL',
            ],
        ),
        (
            "mariadb",
            [
                f"{_MARIADB} DROP COLUMN `note`, RENAME COLUMN `name` TO `title`, ADD COLUMN {_MARIADB_ADDED}",
                "ALTER TABLE `sub`.`vendor` ALTER COLUMN `paid` SET DEFAULT NULL",
            ],
        ),
        (
            "mssql",
            [
                "exec sp_rename '[sub].[vendor].[name]', 'title', N'COLUMN'",
                "ALTER TABLE [sub].[vendor] DROP COLUMN [note]",
                "ALTER TABLE [sub].[vendor] ADD [paid] DECIMAL(10, 2) NULL",
                "UPDATE [sub].[vendor] SET [paid]=0.50",
            ],
        ),
        (
            "sqlite",
            [
                'ALTER TABLE "vendor" RENAME COLUMN "name" TO "title"',
                'ALTER TABLE "vendor" DROP COLUMN "note"',
                'ALTER TABLE "vendor" ADD COLUMN "paid" TEXT',
                'UPDATE "vendor" SET "paid"=? (\'0.50\')',
            ],
        ),
        ("oracle", ["-- by hand: RENAME COLUMN name TO title", "-- by hand: DROP COLUMN note"]),
    ],
)
def test_each_kind_of_subscriber_runs_its_own_statements(kind: str, wanted: list[str]) -> None:
    planned = _planned(kind)
    assert [it for it in planned if it in wanted] == wanted, planned
