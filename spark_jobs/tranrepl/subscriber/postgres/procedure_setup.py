"""Generated procedures that setup creates at a PostgreSQL Subscriber, and that a schema change replaces."""

from __future__ import annotations

from psycopg import sql
from psycopg.pq import ExecStatus

from tranrepl.errors import CustomProcedureError
from tranrepl.postgres.composed_sql import type_sql
from tranrepl.postgres.session import Session
from tranrepl.subscriber.base.generated_procedures import GeneratedProcedure, GeneratedProcedures
from tranrepl.subscriber.postgres.core import core
from tranrepl.subscriber.postgres.database import POSTGRES
from tranrepl.subscriber.postgres.procedures import Procedure, Target, custom_procedures, generated_procedures
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


def renew_procedures(session: Session, where: str, key: SubscriptionKey, target: Target) -> list[str]:
    """Make the generated procedures of a new definition, inside the open transaction; return what was done.

    Raises CustomProcedureError where a custom procedure, or one that was edited by hand, does not take the new call.
    """
    procedures = GeneratedProcedures(core(session), POSTGRES, key, where)
    wanted = generated_procedures(target)
    edited = procedures.edited([it.name for it in wanted])
    for it in (it for it in wanted if it.name in edited):
        printed = "`tranrepl script FILE -s NAME` prints the generated one"
        _require_call(session, where, target, it, "was edited by hand, and", printed)
    done = procedures.follow(made_procedures(target))
    for custom in custom_procedures(target):
        printed = "`tranrepl script FILE --custom` prints a skeleton"
        _require_call(session, where, target, custom, "is your own, and", printed)
    return done


def made_procedures(target: Target) -> list[GeneratedProcedure]:
    """Return the procedures that setup makes for an article."""
    source = str(target.article.source)
    return [GeneratedProcedure(source, it.name, it.create().as_string(None)) for it in generated_procedures(target)]


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
