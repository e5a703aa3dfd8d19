"""Sequences of a PostgreSQL Subscriber, which follow the Publisher's and never go back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from psycopg import sql

from tranrepl.model.article import RegisteredArticle
from tranrepl.model.names import TableName
from tranrepl.model.sequences import ArticleColumn, ColumnSequence, FoundSequences, SequenceState
from tranrepl.postgres.catalogue import qualified
from tranrepl.postgres.sequences import bounded, grants_on_sequences, sequence_states, table_sequences
from tranrepl.postgres.session import Session, translated_errors
from tranrepl.subscriber.postgres.replication_tables import MINE, SNAPSHOTS, has_table, key_values
from tranrepl.subscriber.sequences import SequenceScope
from tranrepl.subscriber.subscription import SubscriptionKey

_DESTINATIONS = """
SELECT pg_catalog.to_regclass(name)::bigint, article FROM unnest(%s::text[], %s::text[]) AS asked(name, article)
 WHERE pg_catalog.to_regclass(name) IS NOT NULL
"""
_CREATED = " AND article IN (SELECT article FROM {} WHERE {} AND created)"
# One of two jobs that set the same sequences waits: between one's look and its setval the other sets nothing.
_ALONE = "SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('tranrepl sequences', 0))"
# As SequenceState.is_behind has it; numeric, as a next number may be beyond bigint.
_ADVANCE = """
SELECT {schema}, {name}, pg_catalog.setval({sequence}::regclass, {last_value}, {is_called})
  FROM {table} now, pg_catalog.pg_sequence s
 WHERE s.seqrelid = {sequence}::regclass
   AND sign(s.seqincrement)
       * (now.last_value::numeric + CASE WHEN now.is_called THEN s.seqincrement ELSE 0 END - {last_value})
       < CASE WHEN {is_called} THEN 1 ELSE 0 END
"""


class PostgresSequences:
    """Sequences of identity and serial columns, and of plain defaults."""

    def __init__(self, session: Session, key: SubscriptionKey, where: str) -> None:
        self._session = session
        self._key = key
        self._where = where

    def find(self, articles: Sequence[RegisteredArticle], scope: SequenceScope) -> FoundSequences:
        with translated_errors(self._where), bounded(self._session):
            tables = self._destinations(articles, scope)
            published = [
                it
                for it in table_sequences(self._session, tables)
                if it.column in {column.name for column in tables[it.object_id].columns}
            ]
            usable = [it for it in published if it.may_read and it.may_set]
            states = sequence_states(self._session, usable)
            lacking = {it.name for it in published} - {it.name for it in usable}
            return FoundSequences(
                {
                    ArticleColumn(tables[it.object_id].source, it.column): ColumnSequence(
                        it.name, it.definition, states.get(it.name)
                    )
                    for it in published
                },
                grants_on_sequences(self._session, "SELECT, UPDATE", lacking),
            )

    def _destinations(
        self, articles: Sequence[RegisteredArticle], scope: SequenceScope
    ) -> dict[int, RegisteredArticle]:
        """Return articles by the object id of their destination."""
        if scope is SequenceScope.CREATED and not has_table(self._session, SNAPSHOTS):
            return {}
        by_source = {str(it.source): it for it in articles}
        names = [qualified(it.destination).as_string(self._session) for it in by_source.values()]
        query = sql.Composed([sql.SQL(_DESTINATIONS)])
        values: list[object] = [names, list(by_source)]
        if scope is SequenceScope.CREATED:
            query += sql.SQL(_CREATED).format(SNAPSHOTS, MINE)
            values += key_values(self._key)[1:]
        rows = self._session.execute(query, values).fetchall()
        return {object_id: by_source[source] for object_id, source in rows}

    def advance(self, targets: Mapping[TableName, SequenceState]) -> list[TableName]:
        statements = [_advance(self._session, name, state) for name, state in sorted(targets.items())]
        with translated_errors(self._where), bounded(self._session):
            self._session.execute(_ALONE)
            rows = self._session.execute(sql.SQL(" UNION ALL ").join(statements)).fetchall()
        return [TableName(schema, name) for schema, name, _ in rows]


def _advance(session: Session, name: TableName, state: SequenceState) -> sql.Composed:
    """Return the query that sets a sequence where it is behind. It looks in the moment in which it sets it."""
    return sql.SQL(_ADVANCE).format(
        schema=sql.Literal(name.schema),
        name=sql.Literal(name.table),
        sequence=sql.Literal(qualified(name).as_string(session)),
        table=qualified(name),
        last_value=sql.Literal(state.last_value),
        is_called=sql.Literal(state.is_called),
    )
