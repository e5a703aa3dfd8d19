"""Articles and commands as the Log Reader would leave them, made by hand: no Publisher, no Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from support.registered import empty_definition
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.bitmask import bitmask
from tranrepl.model.call_syntax import Values, sent
from tranrepl.model.catalogue import ColumnDescription, Identity, TableDescription
from tranrepl.model.command_rows import ROW_LAYOUT
from tranrepl.model.commands import XACT_SEQNO_BYTES, Method, Operation
from tranrepl.model.names import TableName
from tranrepl.model.schema_change import SchemaChange
from tranrepl.model.table_definition import Generation
from tranrepl.settings.publication import Article
from tranrepl.settings.registration import registered_article

Image = Sequence[str | None]


@dataclass(frozen=True, slots=True)
class Column:
    """`type_name` as PostgreSQL spells it; `key` is its place in the primary key, from 1."""

    name: str
    type_name: str = "text"
    key: int | None = None
    not_null: bool = False


def table_description(name: TableName, columns: Sequence[Column]) -> TableDescription:
    """Describe a table as a PostgreSQL Publisher's catalogue would."""
    return TableDescription(
        name=name,
        object_id=1,
        kind="table",
        persistence="permanent",
        replica_identity="full",
        columns=tuple(_described(at, column) for at, column in enumerate(columns)),
        deferrable=False,
        definition=empty_definition(name),
    )


def _described(at: int, column: Column) -> ColumnDescription:
    return ColumnDescription(
        name=column.name,
        ordinal=at + 1,
        type_oid=25,
        type_modifier=-1,
        type_name=column.type_name,
        base_type_name=column.type_name.split("(")[0],
        not_null=column.not_null or column.key is not None,
        generation=Generation.NONE,
        identity=Identity.NONE,
        generation_expression=None,
        generated_from=(),
        key_ordinal=column.key,
        unique=column.key is not None,
        toastable=False,
    )


def registered(article: Article, table: TableDescription, article_id: int) -> RegisteredArticle:
    return registered_article(article, table).model_copy(update={"article_id": article_id})


@dataclass(slots=True)
class History:
    """Commands in order; `transaction` begins the next transaction. Images are whole rows, in text form."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    xact: int = 0
    command_id: int = 0

    def transaction(self) -> History:
        self.xact, self.command_id = self.xact + 1, 0
        return self

    def insert(self, article: RegisteredArticle, after: Image) -> History:
        return self._add(article, Operation.INSERT, None, after)

    def update(self, article: RegisteredArticle, before: Image, after: Image) -> History:
        return self._add(article, Operation.UPDATE, before, after)

    def delete(self, article: RegisteredArticle, before: Image) -> History:
        return self._add(article, Operation.DELETE, before, None)

    def truncate(self, article: RegisteredArticle) -> History:
        return self._add(article, Operation.TRUNCATE, None, None)

    def schema(self, change: SchemaChange) -> History:
        """Add a schema change as a command: what comes before has the old definition, what comes after the new one."""
        if self.xact == 0:
            self.transaction()
        self.command_id += 1
        self.rows.append(
            {
                "xact_seqno": seqno(self.xact),
                "command_id": self.command_id,
                "commit_time": datetime(2024, 1, 1, tzinfo=UTC),
                "article_id": change.article_id,
                "operation": int(Operation.SCHEMA),
                "before": None,
                "after": change.model_dump_json(),
                "changed": None,
            }
        )
        return self

    def table(self) -> pa.Table:
        return pa.Table.from_pylist(self.rows, ROW_LAYOUT)

    def _add(
        self, article: RegisteredArticle, operation: Operation, before: Image | None, after: Image | None
    ) -> History:
        if self.xact == 0:
            self.transaction()
        if operation is not Operation.TRUNCATE and article.propagation(operation).method is Method.NONE:
            return self
        self.command_id += 1
        travels = None if operation is Operation.TRUNCATE else sent(article.propagation(operation), operation)
        changed = _changed(before, after)
        self.rows.append(
            {
                "xact_seqno": seqno(self.xact),
                "command_id": self.command_id,
                "commit_time": datetime(2024, 1, 1, tzinfo=UTC),
                "article_id": article.article_id,
                "operation": int(operation),
                "before": _line(article, before, travels.before if travels else Values.NONE, changed),
                "after": _line(article, after, travels.after if travels else Values.NONE, changed),
                "changed": bitmask([at + 1 for at in changed], len(article.columns))
                if travels is not None and travels.mask
                else None,
            }
        )
        return self


def seqno(xact: int) -> bytes:
    return xact.to_bytes(XACT_SEQNO_BYTES, "big")


def _changed(before: Image | None, after: Image | None) -> list[int]:
    if before is None or after is None:
        return []
    return [at for at, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]


def _line(article: RegisteredArticle, image: Image | None, travels: Values, changed: Sequence[int]) -> str | None:
    """Return the part of an image that travels, in COPY's text format."""
    if image is None or travels is Values.NONE:
        return None
    kept = {
        Values.ALL: range(len(image)),
        Values.KEY: article.key_positions,
        Values.CHANGED: changed,
    }[travels]
    return "\t".join(_cell(value) if at in kept else "\\N" for at, value in enumerate(image))


def _cell(value: str | None) -> str:
    if value is None:
        return "\\N"
    return value.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
