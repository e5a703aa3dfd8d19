"""Generated procedures that setup creates at a PostgreSQL Subscriber."""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from tranrepl.postgres.session import Session, translated_errors
from tranrepl.subscriber.dialect import SubscriptionKey
from tranrepl.subscriber.postgres.procedures import SCHEMA, Procedure, Target, generated_procedures, trusted
from tranrepl.subscriber.postgres.replication_tables import OBJECTS


def create_procedures(session: Session, where: str, key: SubscriptionKey, targets: Sequence[Target]) -> list[str]:
    """Create or regenerate the generated procedures. One edited by hand is left alone, and said so."""
    done: list[str] = []
    with translated_errors(where), session.transaction():
        for target in targets:
            for generated in generated_procedures(target):
                done += _create_procedure(session, where, key, target, generated)
    return done


def _create_procedure(
    session: Session, where: str, key: SubscriptionKey, target: Target, generated: Procedure
) -> list[str]:
    text = generated.create().as_string(session)
    existing = session.execute(
        "SELECT p.oid::regprocedure::text, p.prosrc FROM pg_catalog.pg_proc p "
        "JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = %s AND p.proname = %s",
        [SCHEMA, generated.name],
    ).fetchall()
    registered = session.execute(
        sql.SQL("SELECT object_text FROM {} WHERE object_name = %s").format(OBJECTS), [generated.name]
    ).fetchone()
    if registered is not None and registered[0] == text and existing:
        edited = any(source != generated.body for _, source in existing)
        return [f"left procedure {generated.name} alone: it was edited by hand"] if edited else []
    for signature, _ in existing:
        session.execute(sql.SQL("DROP PROCEDURE {}").format(trusted(signature)))
    session.execute(generated.create())
    session.execute(
        sql.SQL(
            "INSERT INTO {} (publisher, publisher_db, publication, article, object_name, object_type, object_text) "
            "VALUES (%s, %s, %s, %s, %s, 'P', %s) ON CONFLICT (object_name) DO UPDATE SET "
            "publisher = excluded.publisher, publisher_db = excluded.publisher_db, article = excluded.article, "
            "publication = excluded.publication, object_text = excluded.object_text"
        ).format(OBJECTS),
        [
            key.publisher,
            key.publisher_db,
            key.publication,
            str(target.article.source),
            generated.name,
            text,
        ],
    )
    return [f"created procedure {generated.name} at {where}"]
