"""A PostgreSQL Subscriber: its tables and procedures, and the watermark."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from psycopg import sql
from psycopg.pq import ExecStatus

from tranrepl.errors import ConfigurationError, CustomProcedureError, DataError, FencedError, ReplicationError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.call_syntax import argument_count
from tranrepl.model.catalogue import ColumnDescription, Generation, TableDescription
from tranrepl.model.commands import FIRST_XACT_SEQNO, Method, Operation
from tranrepl.model.names import TableName
from tranrepl.postgres.catalogue import describe_table, describe_tables, qualified
from tranrepl.postgres.session import Session, translated_errors
from tranrepl.settings.publication import Article, Subscription
from tranrepl.subscriber.constraints import Constraints, Reference, UniqueKey
from tranrepl.subscriber.dialect import (
    Scripted,
    Stream,
    StreamRecord,
    SubscriptionKey,
    SubscriptionPosition,
    UnfinishedBatch,
    fenced,
    not_set_up,
)
from tranrepl.subscriber.foreign_keys import ForeignKey
from tranrepl.subscriber.narrower_columns import null_warning, postgres_lost, warning
from tranrepl.subscriber.postgres.model_tables import (
    OBJECTS,
    SNAPSHOTS,
    WATERMARKS,
    adopt_unidentified_rows,
    create_model_tables,
)
from tranrepl.subscriber.postgres.procedures import (
    MOST_ARGUMENTS,
    SCHEMA,
    Procedure,
    Target,
    procedure,
    trusted,
)
from tranrepl.subscriber.postgres.rights_check import right_problems
from tranrepl.subscriber.procedure_names import PREFIXES, generates
from tranrepl.subscriber.stream_rows import StreamRow, position_of, stands_at

_PLACEMENT_LOCK_TIMEOUT = "300s"


class PostgresSubscriber:
    """One subscription's end in one PostgreSQL database."""

    def __init__(self, session: Session, key: SubscriptionKey) -> None:
        self._session = session
        self._key = key
        self.where = f"Subscriber {key.subscription}"

    @property
    def database(self) -> str:
        return self._session.info.dbname

    @property
    def version(self) -> int:
        """Major version."""
        return self._session.info.server_version // 10000

    # Checks

    def subscription_problems(self, subscription: Subscription) -> Iterator[ConfigurationError]:
        """What keeps this Subscriber from delivering as the subscription asks, each with its way out."""
        if subscription.not_for_replication:
            yield from replica_role_problems(self._session, self.where)

    def warnings(self, tables: Sequence[tuple[Article, TableDescription]]) -> Iterator[str]:
        """What is allowed, but may stop a delivery one day."""
        del tables
        yield from ()

    def article_problems(self, article: Article, source: TableDescription) -> Iterator[ConfigurationError]:
        """What keeps this Subscriber from taking the article, each with its way out."""
        columns = source.published(article.columns)
        for operation in PREFIXES:
            propagation = article.propagation(operation)
            count = argument_count(propagation, operation, len(columns), range(len(source.key)))
            if propagation.method is Method.PROCEDURE and count > MOST_ARGUMENTS:
                option = {Operation.INSERT: "ins_cmd", Operation.UPDATE: "upd_cmd", Operation.DELETE: "del_cmd"}
                yield ConfigurationError(
                    f"article {article.source}: {option[operation]}: the procedure would take {count} arguments, "
                    f"a PostgreSQL procedure takes {MOST_ARGUMENTS}",
                    remedy=f"{option[operation]}: SQL, or fewer columns",
                )
        table = self.find_destination(article.destination_table)
        if table is None:
            yield from self._missing_types(article, columns)
            return
        if table.kind not in ("table", "partitioned table"):
            yield ConfigurationError(
                f"article {article.source}: {article.destination_table} at {self.where} is a {table.kind}",
                remedy="allowed: a table, or none, which `tranrepl setup FILE` then creates",
            )
            return
        for column in columns:
            yield from self._column_problems(article, table, column)

    def right_problems(self, articles: Sequence[Article]) -> Iterator[ConfigurationError]:
        """What our role lacks of the rights that setup and deliveries need, with the statements that grant it."""
        return right_problems(self._session, self.where, articles)

    def _missing_types(self, article: Article, columns: Sequence[ColumnDescription]) -> Iterator[ConfigurationError]:
        """Types of one's own that a table made by `tranrepl setup` would need."""
        for column in columns:
            with translated_errors(self.where):
                found = self._session.execute("SELECT to_regtype(%s)", [column.type_name]).fetchone()
            if found == (None,):
                yield ConfigurationError(
                    f"article {article.source}: {self.where}: column {column.name!r}: "
                    f"type {column.type_name} does not exist",
                    remedy="create the type there as it is at the Publisher, or leave the column out of the article",
                )

    def _column_problems(
        self, article: Article, table: TableDescription, column: ColumnDescription
    ) -> Iterator[ConfigurationError]:
        found = table.column(column.name)
        if found is None:
            yield ConfigurationError(
                f"article {article.source}: {self.where}: table {table.name} has no column {column.name!r}",
                remedy=f'ALTER TABLE {table.name} ADD COLUMN "{column.name}" {column.type_name}; '
                "or leave the column out of the article",
            )
        elif found.generation is not Generation.NONE:
            yield ConfigurationError(
                f"article {article.source}: {self.where}: column {column.name!r} of {table.name} is generated",
                remedy="a published column must be a plain one at the Subscriber",
            )

    def article_warnings(self, article: Article, source: TableDescription) -> Iterator[str]:
        """What of an article without problems may not fit into the table that is there."""
        table = self.find_destination(article.destination_table)
        at = f"article {article.source}: {self.where}: table {article.destination_table}"
        pairs = [(it, table.column(it.name)) for it in source.published(article.columns)] if table is not None else []
        for column, found in pairs:
            if found is None:
                continue
            what = postgres_lost(column, found)
            if what is not None:
                yield f"{at}: {warning(column, found.type_name, what)}"
            if found.not_null and not column.not_null:
                yield f"{at}: {null_warning(column)}"

    def custom_problems(self, article: RegisteredArticle, source: TableDescription) -> Iterator[CustomProcedureError]:
        """Custom procedures that are missing or declared otherwise than they are called."""
        if not any(article.propagation(it).procedure for it in PREFIXES):
            return
        target = self.intended_target(article, source)
        for custom in custom_procedures(target):
            if not self._accepts_call(custom):
                yield CustomProcedureError(
                    f"article {target.article.source}: {self.where}: there is no procedure that takes the call of "
                    f"{custom.identifier.as_string(None)}",
                    remedy=f"declare it as PROCEDURE {custom.signature().as_string(None)}; "
                    "`tranrepl script FILE --custom` prints a skeleton",
                    article=str(target.article.source),
                )

    def _accepts_call(self, custom: Procedure) -> bool:
        """Whether the server would take the call with arguments of these types. Parsing it runs nothing."""
        values = sql.SQL(", ").join(
            sql.SQL("NULL::{}").format(trusted(type_name)) for _, type_name in custom.parameters
        )
        call = sql.SQL("CALL {}({})").format(custom.identifier, values).as_string(self._session)
        parsed = self._session.pgconn.prepare(b"", call.encode())
        if parsed.status != ExecStatus.COMMAND_OK:
            return False
        # An argument that gives something back has nobody to give it to.
        giving = self._session.execute(
            "SELECT EXISTS (SELECT FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace "
            "WHERE n.nspname = %s AND p.proname = %s AND p.proargmodes && '{o,b}')",
            [custom.schema, custom.name],
        ).fetchone()
        return giving == (False,)

    # Setup

    def set_up_tables(self) -> None:
        """The model's tables at the Subscriber. Idempotent."""
        with translated_errors(self.where), self._session.transaction():
            create_model_tables(self._session)

    def set_up_watermark(self) -> list[str]:
        """A new subscription has received nothing. An existing watermark is left alone."""
        with translated_errors(self.where), self._session.transaction():
            adopt_unidentified_rows(self._session, self._key)
            created = self._session.execute(
                sql.SQL(
                    "INSERT INTO {} (publisher, publisher_system, publisher_db, publication, subscription, stream, "
                    "transaction_timestamp) VALUES (%s, %s, %s, %s, %s, 0, %s) ON CONFLICT DO NOTHING"
                ).format(WATERMARKS),
                [*self._key_values(), FIRST_XACT_SEQNO],
            ).rowcount
        return [f"created subscription {self._key.subscription} at {self.database}"] if created else []

    def _key_values(self) -> list[str]:
        key = self._key
        return [key.publisher, key.publisher_system, key.publisher_db, key.publication, key.subscription]

    def has_destination(self, table: TableName) -> bool:
        with translated_errors(self.where):
            found = self._session.execute(
                "SELECT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n "
                "ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s)",
                [table.schema, table.table],
            ).fetchone()
        return found == (True,)

    def set_up_destination(
        self, article: Article, source: TableDescription, referencing: Collection[str] = ()
    ) -> list[str]:
        """Create the destination table where it is missing: published columns, NOT NULL, primary key.

        Generated columns come along where all they need is published. Identity does not (`schema_option` 0x04 is off).
        """
        # A column has the same type with and without a foreign key.
        del referencing
        name = article.destination_table
        with translated_errors(f"{self.where}, table {name}"), self._session.transaction():
            if self.has_destination(name):
                return []
            self._create_schema(name.schema)
            self._session.execute(self._create_table(name, article, source))
            # A snapshot may build the indexes of such a table after it is loaded.
            self._session.execute(
                sql.SQL(
                    "INSERT INTO {} (publisher, publisher_system, publisher_db, publication, subscription, article, "
                    "range_number, snapshot, created) VALUES (%s, %s, %s, %s, %s, %s, 0, '', true) "
                    "ON CONFLICT (publisher_system, publisher_db, publication, subscription, article, range_number) "
                    "DO UPDATE SET created = true"
                ).format(SNAPSHOTS),
                [*self._key_values(), str(article.source)],
            )
        return [f"created table {name} at {self.where}"]

    def set_up_foreign_key(self, key: ForeignKey, *, new: bool) -> list[str]:
        """Checked at commit, and without cascades: the Publisher's come as commands, after their parent's."""
        table, referenced = self.find_destination(key.table), self.find_destination(key.referenced)
        if table is None or referenced is None or key.is_among(table.foreign_keys):
            return []
        statement = _create_foreign_key(key).as_string(self._session)
        if not new:
            return [key.left_out(f"the table was there before; add it by {statement}")]
        try:
            with translated_errors(self.where), self._session.transaction():
                self._session.execute(_create_foreign_key(key))
        except (DataError, ConfigurationError) as error:
            return [key.left_out(error.message)]
        return [f"created foreign key {key.name} of table {key.table} at {self.where}"]

    def _create_schema(self, name: str) -> None:
        """IF NOT EXISTS asks for CREATE on the database also where the schema is there."""
        found = self._session.execute(
            "SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = %s)", [name]
        ).fetchone()
        if found == (False,):
            self._session.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(name)))

    def _create_table(self, name: TableName, article: Article, source: TableDescription) -> sql.Composed:
        published = source.published(article.columns)
        names = {column.name for column in published}
        parts: list[sql.Composable] = []
        for column in source.columns:
            definition = sql.SQL("{} {}").format(sql.Identifier(column.name), trusted(column.type_name))
            if column.name in names:
                parts.append(definition + sql.SQL(" NOT NULL" if column.not_null else ""))
            elif column.generation_expression is not None and names.issuperset(column.generated_from):
                parts.append(definition + self._generated(column))
        key = sql.SQL(", ").join(sql.Identifier(column.name) for column in source.key)
        parts.append(sql.SQL("PRIMARY KEY ({})").format(key))
        return sql.SQL("CREATE TABLE {} (\n  {}\n)").format(qualified(name), sql.SQL(",\n  ").join(parts))

    def _generated(self, column: ColumnDescription) -> sql.Composable:
        virtual = column.generation is Generation.VIRTUAL and self.version >= 18
        return sql.SQL(" GENERATED ALWAYS AS ({}) {}").format(
            trusted(column.generation_expression or ""), sql.SQL("VIRTUAL" if virtual else "STORED")
        )

    def scripts(self, article: RegisteredArticle, source: TableDescription, what: Scripted) -> list[str]:
        """`CREATE PROCEDURE` statements, as they fit the table that is there, or that setup would create."""
        target = self.intended_target(article, source)
        procedures = custom_procedures(target) if what is Scripted.CUSTOM else generated_procedures(target)
        return [it.create().as_string(self._session) for it in procedures]

    def set_up_procedures(self, articles: Sequence[RegisteredArticle]) -> list[str]:
        """Create or regenerate the generated procedures. One edited by hand is left alone, and said so."""
        done: list[str] = []
        targets = self.targets(articles)
        with translated_errors(self.where), self._session.transaction():
            for target in targets:
                for generated in generated_procedures(target):
                    done += self._set_up_procedure(target, generated)
        return done

    def _set_up_procedure(self, target: Target, generated: Procedure) -> list[str]:
        text = generated.create().as_string(self._session)
        existing = self._session.execute(
            "SELECT p.oid::regprocedure::text, p.prosrc FROM pg_catalog.pg_proc p "
            "JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = %s AND p.proname = %s",
            [SCHEMA, generated.name],
        ).fetchall()
        registered = self._session.execute(
            sql.SQL("SELECT object_text FROM {} WHERE object_name = %s").format(OBJECTS), [generated.name]
        ).fetchone()
        if registered is not None and registered[0] == text and existing:
            edited = any(source != generated.body for _, source in existing)
            return [f"left procedure {generated.name} alone: it was edited by hand"] if edited else []
        for signature, _ in existing:
            self._session.execute(sql.SQL("DROP PROCEDURE {}").format(trusted(signature)))
        self._session.execute(generated.create())
        self._session.execute(
            sql.SQL(
                "INSERT INTO {} (publisher, publisher_db, publication, article, object_name, object_type, object_text) "
                "VALUES (%s, %s, %s, %s, %s, 'P', %s) ON CONFLICT (object_name) DO UPDATE SET "
                "publisher = excluded.publisher, publisher_db = excluded.publisher_db, article = excluded.article, "
                "publication = excluded.publication, object_text = excluded.object_text"
            ).format(OBJECTS),
            [
                self._key.publisher,
                self._key.publisher_db,
                self._key.publication,
                str(target.article.source),
                generated.name,
                text,
            ],
        )
        return [f"created procedure {generated.name} at {self.where}"]

    def find_destination(self, table: TableName) -> TableDescription | None:
        with translated_errors(self.where):
            return describe_table(self._session, table)

    def target(self, article: RegisteredArticle) -> Target:
        """As `targets`, of one article."""
        return self.targets([article])[0]

    def targets(self, articles: Sequence[RegisteredArticle]) -> list[Target]:
        """The articles at this Subscriber. Raises ConfigurationError where a table or a column is missing."""
        with translated_errors(self.where):
            tables = describe_tables(self._session, [it.destination for it in articles])
        return [self._target(article, tables.get(article.destination)) for article in articles]

    def _target(self, article: RegisteredArticle, table: TableDescription | None) -> Target:
        if table is None:
            raise ConfigurationError(
                f"{self.where}: table {article.destination} does not exist",
                remedy="run `tranrepl setup FILE`",
                article=str(article.source),
            )
        columns = [table.column(column.name) for column in article.columns]
        missing = [column.name for column, found in zip(article.columns, columns, strict=True) if found is None]
        if missing:
            raise ConfigurationError(
                f"{self.where}: table {article.destination} has no column {', '.join(missing)}",
                remedy="add it to the table, or leave it out of the article and run `tranrepl setup FILE`",
                article=str(article.source),
            )
        return Target(article, table, tuple(column for column in columns if column is not None))

    def intended_target(self, article: RegisteredArticle, source: TableDescription) -> Target:
        """As `target`; where the table does not exist yet, as setup would create it, with the Publisher's types."""
        if self.find_destination(article.destination) is not None:
            return self.target(article)
        columns = [source.column(column.name) for column in article.columns]
        return Target(article, source, tuple(column for column in columns if column is not None))

    # Watermark

    def set_up_streams(self, streams: int) -> None:
        """A row for each stream, before any of them writes: so that whoever comes later can wait for it."""
        with translated_errors(self.where), self._session.transaction():
            rows = self._session.execute(
                sql.SQL("SELECT stream FROM {} WHERE {}").format(WATERMARKS, _MINE), self._key_values()[1:]
            )
            missing = sorted(set(range(1, streams)) - {int(number) for (number,) in rows})
            # The right to insert is setup's, not every job's.
            if missing:
                self._session.execute(
                    sql.SQL(
                        "INSERT INTO {} (publisher, publisher_system, publisher_db, publication, subscription, stream, "
                        "transaction_timestamp) SELECT %s, %s, %s, %s, %s, number, %s FROM unnest(%s::int[]) number "
                        "ON CONFLICT DO NOTHING"
                    ).format(WATERMARKS),
                    [*self._key_values(), FIRST_XACT_SEQNO, missing],
                )

    def position(self) -> SubscriptionPosition:
        """Where the subscription stands, after a delivery has ended whose job was killed.

        Raises ConfigurationError where the subscription is not set up, FencedError where another delivery goes on.
        """
        with self._fencing(), translated_errors(self.where), self._session.transaction():
            self._session.execute("SELECT set_config('lock_timeout', %s, true)", [_PLACEMENT_LOCK_TIMEOUT])
            return position_of(self._locked_rows())

    def _locked_rows(self) -> list[StreamRow]:
        rows = self._session.execute(
            sql.SQL(
                "SELECT stream, transaction_timestamp, batch_after, batch_streams, batch_division FROM {} "
                "WHERE {} ORDER BY stream FOR UPDATE"
            ).format(WATERMARKS, _MINE),
            self._key_values()[1:],
        ).fetchall()
        if not rows or rows[0][0] != 0:
            raise self._not_set_up()
        return [StreamRow(*row) for row in rows]

    def watermark(self) -> bytes:
        """The last transaction up to which all is applied. Raises ConfigurationError where it is not set up."""
        found = self.find_watermark()
        if found is None:
            raise self._not_set_up()
        return found

    def _has_table(self, table: sql.Identifier) -> bool:
        return self._session.execute("SELECT to_regclass(%s)", [table.as_string(None)]).fetchone() != (None,)

    def has_snapshots(self) -> bool:
        """Whether `MSreplication_snapshots` is there."""
        return self._has_table(SNAPSHOTS)

    def initialized_articles(self) -> dict[str, bytes]:
        """By article (source): the last transaction that is in the snapshot which its table began with."""
        with translated_errors(self.where):
            rows = self._session.execute(
                sql.SQL(
                    "SELECT article, xact_seqno FROM {} WHERE {} AND range_number = 0 AND xact_seqno IS NOT NULL"
                ).format(SNAPSHOTS, _MINE),
                self._key_values()[1:],
            ).fetchall()
        return {article: bytes(seqno) for article, seqno in rows}

    def find_watermark(self) -> bytes | None:
        """The last transaction applied; None where the subscription is not set up."""
        with translated_errors(self.where):
            if not self._has_table(WATERMARKS):
                return None
            row = self._session.execute(
                sql.SQL("SELECT transaction_timestamp FROM {} WHERE {} AND stream = 0").format(WATERMARKS, _MINE),
                self._key_values()[1:],
            ).fetchone()
        return bytes(row[0]) if row else None

    def move_watermark(self, expected: bytes, xact_seqno: bytes) -> None:
        """Where an administrator wants the next delivery to begin. Raises FencedError where a delivery was faster."""
        with translated_errors(self.where), self._session.transaction():
            if self._locked_rows()[0].xact_seqno != expected:
                raise self._fenced()
            self._session.execute(
                sql.SQL("UPDATE {} SET transaction_timestamp = %s WHERE {} AND stream <> 0").format(WATERMARKS, _MINE),
                [FIRST_XACT_SEQNO, *self._key_values()[1:]],
            )
            self.advance_watermark(xact_seqno)

    def lock_watermark(self, expected: bytes, stream: Stream, finishing: UnfinishedBatch | None = None) -> None:
        """Inside a transaction: fence off other deliveries. Raises FencedError where one of them was here.

        Stream 0 also locks the rows that no stream of now has: one of an earlier delivery may still be about to commit.
        """
        chosen = sql.SQL("(stream = 0 OR stream >= %s)" if stream.number == 0 else "stream = %s")
        rows = self._session.execute(
            sql.SQL("SELECT stream, transaction_timestamp FROM {} WHERE {} AND {} ORDER BY stream FOR UPDATE").format(
                WATERMARKS, _MINE, chosen
            ),
            [*self._key_values()[1:], stream.number or stream.streams],
        ).fetchall()
        if not rows or rows[0][0] != stream.number:
            raise self._not_set_up()
        if not stands_at(expected, [(number, bytes(seqno)) for number, seqno in rows], finishing):
            raise self._fenced()

    def advance_watermark(self, xact_seqno: bytes) -> None:
        """Inside the transaction that applied the commands."""
        self._session.execute(
            sql.SQL("UPDATE {} SET transaction_timestamp = %s, time = now() WHERE {} AND stream = 0").format(
                WATERMARKS, _MINE
            ),
            [xact_seqno, *self._key_values()[1:]],
        )

    def record_stream(self, stream: Stream, record: StreamRecord) -> None:
        """Inside the transaction that applied a stream's part of the commands."""
        self._session.execute(
            sql.SQL(
                "UPDATE {} SET transaction_timestamp = %s, batch_after = %s, batch_streams = %s, batch_division = %s, "
                "time = now() WHERE {} AND stream = %s"
            ).format(WATERMARKS, _MINE),
            [record.last, record.after, record.streams, record.division, *self._key_values()[1:], stream.number],
        )

    @contextmanager
    def _fencing(self) -> Iterator[None]:
        try:
            yield
        except ReplicationError as error:
            if error.report.code == "55P03":
                raise self._fenced() from error
            if error.report.code in ("42P01", "42703", "3F000"):
                raise self._not_set_up() from error
            raise

    def _fenced(self) -> FencedError:
        return fenced(self.where)

    def _not_set_up(self) -> ConfigurationError:
        return not_set_up(self.where, self._key, self.database)

    # Constraints

    def constraints(self, articles: Sequence[RegisteredArticle]) -> Constraints:
        """Unique keys and foreign keys of the articles' tables."""
        targets = self.targets(articles)
        by_table = {target.table.object_id: target for target in targets}
        with translated_errors(self.where):
            unique = self._session.execute(_UNIQUE_KEYS, [list(by_table)]).fetchall()
            foreign = self._session.execute(_FOREIGN_KEYS, [list(by_table), list(by_table)]).fetchall()
        return Constraints(
            unique_keys=tuple(_unique_key(by_table[table], columns) for table, columns in unique),
            references=tuple(
                it
                for table, columns, parent, parent_columns in foreign
                if (it := _reference(by_table[table], columns, by_table[parent], parent_columns)) is not None
            ),
        )


def _unique_key(target: Target, columns: Sequence[str | None]) -> UniqueKey:
    """A column's name is None where the index is over an expression."""
    positions = [target.position(name) for name in columns]
    known = tuple(at for at in positions if at is not None)
    return UniqueKey(
        article_id=target.article.article_id, positions=known, values_known=len(known) == len(columns) and bool(known)
    )


def _reference(
    child: Target, columns: Sequence[str], parent: Target, parent_columns: Sequence[str]
) -> Reference | None:
    """None where it is over columns that are not published: what is not sent does not change."""
    positions = [child.position(name) for name in columns]
    parent_positions = [parent.position(name) for name in parent_columns]
    if None in positions or None in parent_positions:
        return None
    return Reference(
        article_id=child.article.article_id,
        positions=tuple(at for at in positions if at is not None),
        parent_id=parent.article.article_id,
        parent_positions=tuple(at for at in parent_positions if at is not None),
    )


_MINE = sql.SQL("publisher_system = %s AND publisher_db = %s AND publication = %s AND subscription = %s")

_UNIQUE_KEYS = """
SELECT i.indrelid::bigint,
       ARRAY(SELECT CASE WHEN i.indpred IS NULL AND NOT i.indisexclusion THEN a.attname::text END
               FROM unnest((i.indkey::int2[])[0:i.indnkeyatts - 1]) WITH ORDINALITY k(attnum, place)
               LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum AND k.attnum > 0
              ORDER BY k.place)
  FROM pg_catalog.pg_index i WHERE i.indrelid = ANY (%s::oid[]) AND (i.indisunique OR i.indisexclusion)
 ORDER BY i.indexrelid
"""
_FOREIGN_KEYS = """
SELECT c.conrelid::bigint,
       ARRAY(SELECT a.attname::text FROM unnest(c.conkey) WITH ORDINALITY k(attnum, place)
               JOIN pg_catalog.pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.attnum ORDER BY k.place),
       c.confrelid::bigint,
       ARRAY(SELECT a.attname::text FROM unnest(c.confkey) WITH ORDINALITY k(attnum, place)
               JOIN pg_catalog.pg_attribute a ON a.attrelid = c.confrelid AND a.attnum = k.attnum ORDER BY k.place)
  FROM pg_catalog.pg_constraint c
 WHERE c.contype = 'f' AND c.conrelid = ANY (%s::oid[]) AND c.confrelid = ANY (%s::oid[]) ORDER BY c.oid
"""


def _create_foreign_key(key: ForeignKey) -> sql.Composed:
    return sql.SQL(
        "ALTER TABLE {} ADD CONSTRAINT {} FOREIGN KEY ({}) REFERENCES {} ({}) DEFERRABLE INITIALLY DEFERRED"
    ).format(
        qualified(key.table),
        sql.Identifier(key.name),
        sql.SQL(", ").join(map(sql.Identifier, key.columns)),
        qualified(key.referenced),
        sql.SQL(", ").join(map(sql.Identifier, key.referenced_columns)),
    )


def replica_role_problems(session: Session, where: str) -> Iterator[ConfigurationError]:
    """Whether the session may become a replica's, in which foreign keys and ordinary triggers do not act."""
    grants = session.info.server_version >= 150000
    with translated_errors(where):
        may = session.execute(
            "SELECT pg_catalog.has_parameter_privilege(current_user, 'session_replication_role', 'SET')"
            if grants
            else "SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user"
        ).fetchone()
    if may == (True,):
        return
    role = sql.Identifier(session.info.user).as_string(None)
    grant = f"GRANT SET ON PARAMETER session_replication_role TO {role}"
    yield ConfigurationError(
        f"{where}: not_for_replication: role {session.info.user} may not set session_replication_role",
        remedy=grant if grants else f"a superuser as login; from PostgreSQL 15 on it takes only {grant}",
    )


def generated_procedures(target: Target) -> list[Procedure]:
    """The procedures that setup makes for this article."""
    return [procedure(target, it) for it in PREFIXES if generates(target.article.propagation(it))]


def custom_procedures(target: Target) -> list[Procedure]:
    """The custom procedures that this article calls, as they should be declared."""
    return [procedure(target, it) for it in PREFIXES if target.article.propagation(it).procedure is not None]
