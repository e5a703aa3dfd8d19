"""Indexes and constraints that a snapshot drops from a table that setup made, and builds after the load.

Meanwhile they are written down in a table that other logins may write to as well. So nothing of it becomes SQL but
names: an index is dropped only where its names say all of it, which the catalogue's own definition shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from psycopg import sql
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from tranrepl.errors import ConfigurationError
from tranrepl.model.names import TableName
from tranrepl.postgres.catalogue import qualified
from tranrepl.postgres.session import Session

# Names say all of it where the definition is what they give: no expression, condition, operator class, action.
_PLAIN = """
WITH found AS (
    SELECT CASE c.contype WHEN 'p' THEN 'primary key' WHEN 'u' THEN 'unique' ELSE 'foreign key' END AS kind,
           c.conname AS name, c.conkey AS keys, c.confrelid AS referenced, c.confkey AS referenced_keys,
           c.condeferrable AS is_deferrable, c.condeferred AS is_deferred,
           pg_catalog.pg_get_constraintdef(c.oid) AS definition
      FROM pg_catalog.pg_constraint c WHERE c.conrelid = %(table)s AND c.contype IN ('p', 'u', 'f')
    UNION ALL
    SELECT CASE WHEN i.indisunique THEN 'unique index' ELSE 'index' END, r.relname, i.indkey::int2[], 0, NULL,
           false, false, pg_catalog.pg_get_indexdef(i.indexrelid)
      FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class r ON r.oid = i.indexrelid
     WHERE i.indrelid = %(table)s AND NOT EXISTS (SELECT FROM pg_catalog.pg_constraint c
           WHERE c.conindid = i.indexrelid AND c.contype IN ('p', 'u', 'x'))
), named AS (
    SELECT found.*, n.nspname AS schema, t.relname AS table_name,
           ARRAY(SELECT a.attname::text FROM unnest(keys) WITH ORDINALITY k(number, place)
                   JOIN pg_catalog.pg_attribute a ON a.attrelid = %(table)s AND a.attnum = k.number
                  ORDER BY k.place) AS columns,
           ARRAY(SELECT a.attname::text FROM unnest(referenced_keys) WITH ORDINALITY k(number, place)
                   JOIN pg_catalog.pg_attribute a ON a.attrelid = referenced AND a.attnum = k.number
                  ORDER BY k.place) AS referenced_columns,
           CASE WHEN is_deferrable THEN ' DEFERRABLE' ELSE '' END
           || CASE WHEN is_deferred THEN ' INITIALLY DEFERRED' ELSE '' END AS checked
      FROM found LEFT JOIN pg_catalog.pg_class t ON t.oid = referenced
      LEFT JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace
), listed AS (
    SELECT named.*,
           (SELECT string_agg(pg_catalog.quote_ident(it), ', ' ORDER BY place)
              FROM unnest(columns) WITH ORDINALITY c(it, place)) AS list,
           (SELECT string_agg(pg_catalog.quote_ident(it), ', ' ORDER BY place)
              FROM unnest(referenced_columns) WITH ORDINALITY c(it, place)) AS referenced_list
      FROM named
)
SELECT kind, name::text, columns, is_deferrable, is_deferred, schema::text, table_name::text, referenced_columns
  FROM listed
 WHERE definition = CASE kind
       WHEN 'foreign key' THEN format('FOREIGN KEY (%%s) REFERENCES %%I.%%I(%%s)%%s', list, schema, table_name,
                                      referenced_list, checked)
       WHEN 'primary key' THEN format('PRIMARY KEY (%%s)%%s', list, checked)
       WHEN 'unique' THEN format('UNIQUE (%%s)%%s', list, checked)
       ELSE format('CREATE %%s %%I ON %%s USING btree (%%s)', pg_catalog.upper(kind), name, %(table)s::regclass, list)
       END
 ORDER BY name
"""


class Kind(StrEnum):
    PRIMARY_KEY = "primary key"
    UNIQUE = "unique"
    UNIQUE_INDEX = "unique index"
    INDEX = "index"
    FOREIGN_KEY = "foreign key"


class DeferredIndex(BaseModel):
    """An index, or a constraint, of one table."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Kind
    name: str
    columns: tuple[str, ...]
    is_deferrable: bool = False
    is_deferred: bool = False
    referenced: tuple[str, str] | None = None
    """Schema and table that a foreign key refers to."""
    referenced_columns: tuple[str, ...] = ()

    @property
    def is_foreign_key(self) -> bool:
        return self.kind is Kind.FOREIGN_KEY

    def build(self, table: TableName) -> sql.Composed:
        """Return the statement that makes it."""
        name, columns = sql.Identifier(self.name), _listed(self.columns)
        match self.kind:
            case Kind.INDEX | Kind.UNIQUE_INDEX:
                unique = sql.SQL("UNIQUE " if self.kind is Kind.UNIQUE_INDEX else "")
                return sql.SQL("CREATE {}INDEX {} ON {} ({})").format(unique, name, qualified(table), columns)
            case Kind.FOREIGN_KEY:
                made = sql.SQL("FOREIGN KEY ({}) REFERENCES {} ({})").format(
                    columns, sql.Identifier(*(self.referenced or ())), _listed(self.referenced_columns)
                )
            case _:
                made = sql.SQL("{} ({})").format(
                    sql.SQL("PRIMARY KEY" if self.kind is Kind.PRIMARY_KEY else "UNIQUE"), columns
                )
        return sql.SQL("ALTER TABLE {} ADD CONSTRAINT {} {}{}{}").format(
            qualified(table),
            name,
            made,
            sql.SQL(" DEFERRABLE" if self.is_deferrable else ""),
            sql.SQL(" INITIALLY DEFERRED" if self.is_deferred else ""),
        )

    def drop(self, table: TableName) -> sql.Composed:
        """Return the statement that drops it."""
        if self.kind in (Kind.INDEX, Kind.UNIQUE_INDEX):
            return sql.SQL("DROP INDEX {}").format(sql.Identifier(table.schema, self.name))
        return sql.SQL("ALTER TABLE {} DROP CONSTRAINT {}").format(qualified(table), sql.Identifier(self.name))


def _listed(names: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, names))


def deferrable_indexes(session: Session, table: int) -> list[DeferredIndex]:
    """Return those of a table, by its object id, that can be dropped and built again."""
    return [
        DeferredIndex(
            kind=kind,
            name=name,
            columns=columns,
            is_deferrable=is_deferrable,
            is_deferred=is_deferred,
            referenced=None if referenced is None else (schema, referenced),
            referenced_columns=referenced_columns,
        )
        for kind, name, columns, is_deferrable, is_deferred, schema, referenced, referenced_columns in session.execute(
            _PLAIN, {"table": table}
        )
    ]


_REFERENCED_FROM = """
SELECT EXISTS (SELECT FROM pg_catalog.pg_constraint
                WHERE contype = 'f' AND confrelid = %(table)s
                  AND (conrelid, conname::text) NOT IN (SELECT * FROM unnest(%(tables)s::oid[], %(names)s::text[])))
"""


def is_referenced(session: Session, table: int, dropped: Sequence[tuple[int, str]]) -> bool:
    """Return whether a foreign key refers to a table, other than those that are `dropped`, by their table and name."""
    values = {"table": table, "tables": [it for it, _ in dropped], "names": [name for _, name in dropped]}
    return session.execute(_REFERENCED_FROM, values).fetchone() == (True,)


_INDEXES = TypeAdapter(tuple[DeferredIndex, ...])


def written(indexes: Sequence[DeferredIndex]) -> str | None:
    """Return indexes as they are written down; None for none."""
    return _INDEXES.dump_json(tuple(indexes), exclude_defaults=True).decode() if indexes else None


def readable(text: str | None) -> tuple[DeferredIndex, ...] | None:
    """Return indexes that were written down; None where somebody wrote something else there."""
    try:
        return _INDEXES.validate_json(text) if text is not None else ()
    except ValidationError:
        return None


def read(text: str | None, where: str) -> tuple[DeferredIndex, ...]:
    """Return indexes that were written down. Raises ConfigurationError where somebody wrote something else there."""
    found = readable(text)
    if found is None:
        raise ConfigurationError(
            f"{where}: what a snapshot has to build is no index and no constraint: {text}",
            remedy="`tranrepl reinitialize FILE -s NAME` copies the rows of the article again",
        )
    return found
