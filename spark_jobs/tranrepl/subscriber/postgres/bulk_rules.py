"""What can be applied in bulk at a PostgreSQL Subscriber: where no trigger or procedure depends on commit order."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from psycopg import sql

from tranrepl.model.article import RegisteredArticle
from tranrepl.model.commands import Method, Operation
from tranrepl.model.names import TableName
from tranrepl.postgres.catalogue import qualified
from tranrepl.postgres.session import Session
from tranrepl.subscriber.base.bulk_rules import TableFacts, unedited_operations
from tranrepl.subscriber.batching.steps import Operations
from tranrepl.subscriber.constraints import between_articles, parents_first
from tranrepl.subscriber.postgres.bulk import fits_a_row_table
from tranrepl.subscriber.postgres.procedures import OBJECTS, PROCEDURE_NAMES, SCHEMA, ends_with_body
from tranrepl.subscriber.procedure_names import PREFIXES


class ApplyRules:
    """The rules of one session's articles."""

    def __init__(self, session: Session, articles: Mapping[int, RegisteredArticle]) -> None:
        self._session = session
        self._articles = articles
        self.unedited: frozenset[tuple[int, Operation]] = _unedited(session, articles)
        """Applied by a statement, or by a generated procedure as setup made it."""
        self.bulk: BulkRules = bulk_rules(session, articles, self.unedited)
        self.operations: Mapping[int, Operations] = self.bulk.operations
        """What may go in bulk; another object from the moment on that it is something else."""

    def runs_code(self, article_id: int, operation: Operation) -> bool:
        """Return whether a command that is applied serially runs code of users: a trigger, a rule, or a procedure that
        is not as setup made it."""
        acting = Operation.DELETE if operation is Operation.TRUNCATE else operation
        if acting in self.bulk.code.get(article_id, ()):
            return True
        return is_called(self._articles[article_id], operation, self.unedited)

    def renew(self, destinations: Collection[TableName]) -> None:
        """Read again what concerns these tables, and the foreign keys among all."""
        altered = {number: it for number, it in self._articles.items() if it.destination in destinations}
        others = frozenset(it for it in self.unedited if it[0] not in altered)
        self.unedited = others | _unedited(self._session, altered)
        self.bulk = bulk_rules(self._session, altered, self.unedited, self.bulk)
        if self.bulk.operations != self.operations:
            self.operations = self.bulk.operations


_TRIGGER_EVENTS = {Operation.INSERT: 4, Operation.DELETE: 8, Operation.UPDATE: 16}
_RULE_EVENTS = {Operation.INSERT: "3", Operation.DELETE: "4", Operation.UPDATE: "2"}


@dataclass(frozen=True, slots=True)
class BulkRules:
    """What one Subscriber lets bulk apply do, as its catalogue is now."""

    operations: Mapping[int, Operations] = field(default_factory=dict)
    """The operations of each article_id."""
    parents_first: Mapping[int, int] = field(default_factory=dict)
    """Rank of each article: one that a foreign key refers to comes before the one that refers."""
    code: Mapping[int, Operations] = field(default_factory=dict)
    """The operations of each article_id that run code of users: triggers and rules of the table, and of those to which
    a cascade goes on."""
    references: frozenset[tuple[int, int]] = frozenset()
    """Articles (child, parent) with a foreign key between their tables."""
    tables: Mapping[int, int] = field(default_factory=dict)
    """The oid of each article's table."""


NOTHING_KNOWN = BulkRules()


def bulk_rules(
    session: Session,
    articles: Mapping[int, RegisteredArticle],
    unedited: Collection[tuple[int, Operation]],
    known: BulkRules = NOTHING_KNOWN,
) -> BulkRules:
    """Read the catalogue, for all articles at once. `unedited`: applied by a statement, or by a generated procedure as
    setup made it; `known`: what there is to say of other articles, which is not read again."""
    numbers = list(articles)
    names = [qualified(articles[it].destination).as_string(session) for it in numbers]
    rows = session.execute(_TABLES, [numbers, names]).fetchall()
    tables = {row[0]: _Table(*row[1:]) for row in rows}
    operations = {
        number: frozenset(it for it in PREFIXES if (number, it) in unedited and table.allows(it, articles[number]))
        for number, table in tables.items()
    }
    code = {number: frozenset(it for it in PREFIXES if table.runs_code(it)) for number, table in tables.items()}
    others = {number: it for number, it in known.operations.items() if number not in articles}
    other_code = {number: it for number, it in known.code.items() if number not in articles}
    found = {number: it for number, it in known.tables.items() if number not in articles}
    found |= {number: table.object_id for number, table in tables.items()}
    references = session.execute(_REFERENCES, [[*found.values()], [*found.values()]]).fetchall()
    return BulkRules(
        others | {number: it for number, it in operations.items() if it},
        parents_first(found, references),
        other_code | {number: it for number, it in code.items() if it},
        between_articles(found, references),
        found,
    )


@dataclass(frozen=True, slots=True)
class _Table:
    object_id: int
    plain: bool
    trigger_events: int
    rule_events: str
    cascades: bool
    filled: Sequence[str]
    fixed: Sequence[str]
    unique_keys: Sequence[Sequence[str]]

    def allows(self, operation: Operation, article: RegisteredArticle) -> bool:
        if not self.plain or not self._facts().allows(operation, article):
            return False
        return operation is not Operation.UPDATE or (
            fits_a_row_table(article) and {it.name for it in article.columns}.isdisjoint(self.fixed)
        )

    def _facts(self) -> TableFacts:
        return TableFacts(
            [frozenset(it) for it in self.unique_keys],
            frozenset(filter(self.runs_code, PREFIXES)),
            self.cascades,
            filled_in_order=frozenset(self.filled),
        )

    def runs_code(self, operation: Operation) -> bool:
        """Return whether a trigger or a rule may fire, of this table or of one to which a cascade goes on."""
        # What is GENERATED ALWAYS AS IDENTITY is updated by deleting and inserting the row.
        replaces = operation is Operation.UPDATE and self.fixed
        fire = [it for it in PREFIXES if replaces or it is operation]
        if any(self.trigger_events & _TRIGGER_EVENTS[it] or _RULE_EVENTS[it] in self.rule_events for it in fire):
            return True
        return self.cascades and operation is not Operation.INSERT


def _unedited(session: Session, articles: Mapping[int, RegisteredArticle]) -> frozenset[tuple[int, Operation]]:
    return unedited_operations(articles, PROCEDURE_NAMES, partial(_still_as_made, session))


def _still_as_made(session: Session, names: Sequence[str]) -> list[str]:
    """Return the procedures that are as setup made them; none where the role may not know."""
    if session.execute(_MAY_READ_OBJECTS, [OBJECTS.as_string(session)]).fetchone() != (True,):
        return []
    found: dict[str, list[tuple[str, str]]] = {}
    for name, text, body in session.execute(sql.SQL(_PROCEDURES).format(OBJECTS), [SCHEMA, list(names)]):
        found.setdefault(name, []).append((text, body))
    return [name for name, texts in found.items() if len(texts) == 1 and ends_with_body(*texts[0])]


def is_called(article: RegisteredArticle, operation: Operation, unedited: Collection[tuple[int, Operation]]) -> bool:
    """Return whether a command that is applied serially is a CALL. A procedure as setup made it is not called: its
    statements stand in the dispatcher itself, which saves the call."""
    if operation not in PREFIXES or article.propagation(operation).method is not Method.PROCEDURE:
        return False
    return (article.article_id, operation) not in unedited


_TABLES = r"""
WITH RECURSIVE article AS (
    SELECT number, pg_catalog.to_regclass(name) AS oid FROM unnest(%s::int[], %s::text[]) named(number, name)),
tree(root, oid) AS (
    SELECT DISTINCT oid, oid FROM article WHERE oid IS NOT NULL
    UNION ALL
    SELECT tree.root, i.inhrelid::regclass FROM tree JOIN pg_catalog.pg_inherits i ON i.inhparent = tree.oid)
SELECT article.number, c.oid::bigint,
       (c.relkind = 'p' OR NOT EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE i.inhparent = c.oid))
       AND NOT EXISTS (SELECT FROM tree JOIN pg_catalog.pg_class m ON m.oid = tree.oid
                        WHERE tree.root = c.oid AND m.relkind NOT IN ('r', 'p'))
       AND NOT pg_catalog.row_security_active(c.oid),
       (SELECT coalesce(bit_or(t.tgtype), 0) FROM tree JOIN pg_catalog.pg_trigger t ON t.tgrelid = tree.oid
         WHERE tree.root = c.oid AND NOT t.tgisinternal AND t.tgenabled = ANY (acting.states)),
       (SELECT coalesce(string_agg(r.ev_type::text, ''), '')
          FROM tree JOIN pg_catalog.pg_rewrite r ON r.ev_class = tree.oid
         WHERE tree.root = c.oid AND r.ev_enabled = ANY (acting.states)),
       EXISTS (SELECT FROM tree JOIN pg_catalog.pg_constraint k ON k.confrelid = tree.oid
                WHERE tree.root = c.oid AND k.contype = 'f' AND 'O' = ANY (acting.states)
                  AND (k.confdeltype NOT IN ('a', 'r') OR k.confupdtype NOT IN ('a', 'r'))),
       ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute a
               LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
              WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
                AND (a.attidentity <> ''
                  OR EXISTS (SELECT FROM pg_catalog.regexp_matches(d.adbin::text, ':(?:func|opfunc)id (\d+)', 'g') f
                               JOIN pg_catalog.pg_proc p ON p.oid = f[1]::oid WHERE p.provolatile = 'v'))),
       ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute a
              WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attidentity = 'a'),
       (SELECT coalesce(jsonb_agg(k.columns), '[]') FROM (
           SELECT ARRAY(SELECT a.attname::text FROM unnest((i.indkey::int2[])[0:i.indnkeyatts - 1]) n(attnum)
                          JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = n.attnum) AS columns
             FROM pg_catalog.pg_index i
            WHERE i.indrelid = c.oid AND i.indisunique AND i.indimmediate AND i.indisvalid AND i.indpred IS NULL
              AND i.indexprs IS NULL) k)
  FROM article JOIN pg_catalog.pg_class c ON c.oid = article.oid
 CROSS JOIN (SELECT CASE current_setting('session_replication_role')
                    WHEN 'replica' THEN ARRAY['A', 'R'] ELSE ARRAY['A', 'O'] END::"char"[] AS states) acting
"""
_MAY_READ_OBJECTS = "SELECT pg_catalog.has_table_privilege(pg_catalog.to_regclass(%s), 'SELECT')"
_PROCEDURES = """
SELECT o.object_name, o.object_text, p.prosrc
  FROM {} o JOIN pg_catalog.pg_proc p ON p.proname = o.object_name
  JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
 WHERE n.nspname = %s AND o.object_name = ANY (%s)
"""
_REFERENCES = """
SELECT DISTINCT k.conrelid::bigint, k.confrelid::bigint FROM pg_catalog.pg_constraint k
 WHERE k.contype = 'f' AND k.conrelid = ANY (%s::oid[]) AND k.confrelid = ANY (%s::oid[])
"""
