"""Generated procedures that setup creates at a PostgreSQL Subscriber, and that a schema change makes anew."""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql
from psycopg.pq import ExecStatus

from tranrepl.errors import CustomProcedureError
from tranrepl.postgres.composed_sql import type_sql
from tranrepl.postgres.session import Session, translated_errors
from tranrepl.subscriber.postgres.procedures import (
    OBJECTS,
    SCHEMA,
    Procedure,
    Target,
    custom_procedures,
    ends_with_body,
    generated_procedures,
    trusted,
)
from tranrepl.subscriber.subscription import SubscriptionKey


def accepts_call(session: Session, custom: Procedure) -> bool:
    """Return whether the server would take the call with arguments of these types. Parsing it runs nothing."""
    values = sql.SQL(", ").join(sql.SQL("NULL::{}").format(type_sql(type_name)) for _, type_name in custom.parameters)
    call = sql.SQL("CALL {}({})").format(custom.identifier, values).as_string(session)
    parsed = session.pgconn.prepare(b"", call.encode())
    if parsed.status != ExecStatus.COMMAND_OK:
        return False
    # An argument that gives something back has nobody to give it to.
    giving = session.execute(
        "SELECT EXISTS (SELECT FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace "
        "WHERE n.nspname = %s AND p.proname = %s AND p.proargmodes && '{o,b}')",
        [custom.schema, custom.name],
    ).fetchone()
    return giving == (False,)


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
    existing = _existing(session, generated)
    registered = _registered_text(session, generated)
    if registered == text and existing:
        edited = any(source != generated.body for _, source in existing)
        return [f"left procedure {generated.name} alone: it was edited by hand"] if edited else []
    return [_replace_procedure(session, where, key, target, generated)]


def renew_procedures(session: Session, where: str, key: SubscriptionKey, target: Target) -> list[str]:
    """Make the generated procedures of a new definition, inside the open transaction; return what was done.

    Raises CustomProcedureError where a custom procedure, or one that was edited by hand, does not take the new call.
    """
    done: list[str] = []
    for generated in generated_procedures(target):
        existing, registered = _existing(session, generated), _registered_text(session, generated)
        if existing and not all(ends_with_body(registered or "", body) for _, body in existing):
            printed = "`tranrepl script FILE -s NAME` prints the generated one"
            _require_call(session, where, target, generated, "was edited by hand, and", printed)
            done.append(f"{where}: left procedure {generated.name} alone: it was edited by hand")
        elif registered != generated.create().as_string(session) or not existing:
            done.append(_replace_procedure(session, where, key, target, generated))
    for custom in custom_procedures(target):
        printed = "`tranrepl script FILE --custom` prints a skeleton"
        _require_call(session, where, target, custom, "is your own, and", printed)
    return done


def _require_call(session: Session, where: str, target: Target, wanted: Procedure, whose: str, printed: str) -> None:
    if accepts_call(session, wanted):
        return
    raise CustomProcedureError(
        f"article {target.article.source}: {where}: procedure {wanted.identifier.as_string(None)} {whose} does not "
        "take the calls that come after the schema change, which was not applied",
        remedy=f"create it beside the one that is there, as PROCEDURE {wanted.signature().as_string(None)}, in "
        f"PL/pgSQL or after SET check_function_bodies = off, as the table is not altered yet; {printed}. The delivery "
        "goes on by itself then; drop the other one after it",
        article=str(target.article.source),
    )


def _existing(session: Session, generated: Procedure) -> list[tuple[str, str]]:
    """Return the procedures of that name, with signature and body."""
    return session.execute(
        "SELECT p.oid::regprocedure::text, p.prosrc FROM pg_catalog.pg_proc p "
        "JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = %s AND p.proname = %s",
        [SCHEMA, generated.name],
    ).fetchall()


def _registered_text(session: Session, generated: Procedure) -> str | None:
    row = session.execute(
        sql.SQL("SELECT object_text FROM {} WHERE object_name = %s").format(OBJECTS), [generated.name]
    ).fetchone()
    return row[0] if row is not None else None


def _replace_procedure(session: Session, where: str, key: SubscriptionKey, target: Target, generated: Procedure) -> str:
    # By their own signatures: another list of parameters would make a second procedure.
    for signature, _ in _existing(session, generated):
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
            generated.create().as_string(session),
        ],
    )
    return f"created procedure {generated.name} at {where}"
