"""What setup makes at a PostgreSQL Publisher so that its log announces schema changes: a schema, the secret that signs
messages, functions and event triggers. All publications of a database share them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from psycopg import sql
from psycopg.errors import InsufficientPrivilege, UndefinedFunction

from tranrepl.errors import ConfigurationError
from tranrepl.postgres.session import Session, translated_errors
from tranrepl.publisher.postgres.message_secret import (
    SCHEMA,
    SECRET_TABLE,
    change_secret,
    change_warnings,
    open_to_others,
    untrusted_owners,
)
from tranrepl.publisher.postgres.schema_messages import read_collation

_VERSION = 14
_COMMENT = "tranrepl schema changes, version "
_SCHEMA_COMMENT = "made by tranrepl setup"
_SAFE_PATH, _SCHEMA, _SECRET, _FUNCTIONS = "", "schema", "secret", "functions"
_OWNERSHIP, _TRIGGERS = "ownership", "event triggers"
"""The parts of `announce.sql`."""
_PRINTED = "`tranrepl script FILE --publisher` prints the statements"
_SETUP_MAKES_IT = "`tranrepl setup FILE` makes it"
_NONE_OF_THEM = "the event triggers that capture them are missing"
_ENABLED_ALWAYS = "A"


ANNOUNCE = "announce(regclass[])"
FUNCTIONS = (
    ANNOUNCE,
    "announce_schema_change()",
    "announce_tables(text,text,oid[],boolean,boolean,oid[],oid[],json)",
    "emit(text)",
    "locked_tables()",
)
"""The signatures of the functions in our schema."""
_NAMES = [it.partition("(")[0] for it in FUNCTIONS]
_EVENT_TRIGGERS = ("tranrepl_ddl_end", "tranrepl_drop", "tranrepl_rewrite")
_FOUND = """
SELECT n.oid IS NOT NULL,
       coalesce(pg_catalog.has_schema_privilege(n.oid, 'CREATE'),
                pg_catalog.has_database_privilege(current_database(), 'CREATE')),
       coalesce(pg_catalog.obj_description(n.oid, 'pg_namespace') = %s, false),
       coalesce(pg_catalog.pg_has_role(n.nspowner, 'USAGE'), false),
       c.oid IS NOT NULL,
       coalesce(pg_catalog.pg_has_role(c.relowner, 'USAGE'), false)
  FROM (VALUES (1)) one LEFT JOIN pg_catalog.pg_namespace n ON n.nspname = %s
       LEFT JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = %s
"""
_FOUND_FUNCTIONS = """
SELECT pg_catalog.substr(p.oid::pg_catalog.regprocedure::text, pg_catalog.length(n.nspname) + 2),
       pg_catalog.obj_description(p.oid, 'pg_proc'),
       pg_catalog.pg_has_role(p.proowner, 'USAGE')
  FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
 WHERE n.nspname = %s AND p.proname = ANY (%s)
"""
_FOUND_TRIGGERS = """
SELECT evtname, evtenabled::text, pg_catalog.pg_has_role(evtowner, 'USAGE')
  FROM pg_catalog.pg_event_trigger WHERE evtname = ANY (%s)
"""
_OTHER_OBJECTS = """
SELECT EXISTS (SELECT FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_namespace n ON n.oid = d.refobjid
                WHERE d.refclassid = 'pg_catalog.pg_namespace'::regclass AND n.nspname = %s
                  AND NOT (d.classid = 'pg_catalog.pg_class'::regclass
                           AND d.objid = pg_catalog.to_regclass(pg_catalog.format('%%I.%%I', n.nspname, %s::text)))
                  AND NOT (d.classid = 'pg_catalog.pg_proc'::regclass
                           AND d.objid::pg_catalog.regprocedure::text = ANY (%s)))
"""
_OTHER_PUBLICATIONS = """
SELECT EXISTS (SELECT FROM pg_catalog.pg_publication
                WHERE pg_catalog.starts_with(pubname::text, 'tranrepl_') AND pubname <> %s)
"""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that is made or removed, and whether our role may."""

    what: str
    statements: tuple[sql.Composable, ...]
    allowed: bool


@dataclass(slots=True)
class _FoundTrigger:
    enabled: str
    owned: bool


@dataclass(slots=True)
class _Found:
    schema: bool
    may_create: bool
    schema_is_ours: bool
    owns_schema: bool
    secret: bool
    owns_secret: bool
    versions: dict[str, int] = field(default_factory=dict)
    """By the functions' signatures."""
    owns_functions: bool = True
    triggers: dict[str, _FoundTrigger] = field(default_factory=dict)

    def is_older(self) -> bool:
        """Return whether a function is missing or of an earlier version."""
        return any(self.versions.get(it, 0) < _VERSION for it in FUNCTIONS)

    def owns_all(self) -> bool:
        return (self.owns_schema or not self.schema) and (self.owns_secret or not self.secret) and self.owns_functions


class SchemaChangeSetup:
    """What announces schema changes in one database, for the publication of this name and the others there."""

    made_by_setup = True

    def __init__(self, session: Session, name: str) -> None:
        self._session = session
        self._name = name
        self._where = f"Publisher {session.info.dbname}"
        self._role = sql.Identifier(session.info.user)

    def set_up(self, *, captured: bool = True, new_secret: bool = False) -> list[str]:
        """Make what is missing or of an earlier version, as far as our role may; without `captured`, what messages are
        signed with alone; `new_secret` makes that another one. Returns what was done, in words. Raises
        ConfigurationError where another role that is not trusted owns a part of it."""
        for problem in self.problems():
            raise problem
        removed = [] if captured else self._remove_announcing()
        made = self._make(captured=captured)
        return [*removed, *made, *(self._change_secret() if new_secret else [])]

    def _make(self, *, captured: bool) -> list[str]:
        with translated_errors(self._where), self._session.transaction():
            # Two set-ups at once make it once.
            self._session.execute("SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtext(%s))", [_COMMENT])
            steps = [step for step in self._missing(captured=captured) if step.allowed]
            for step in steps:
                for statement in step.statements:
                    self._session.execute(sql.Composed([statement]))
        return [f"{step.what} at {self._where}" for step in steps]

    def _change_secret(self) -> list[str]:
        with translated_errors(self._where):
            is_another = change_secret(self._session, self._where)
        secret = f"the secret that signs messages in the log at {self._where}"
        again = "`tranrepl setup FILE --new-secret` again makes another one"
        return [f"changed {secret}" if is_another else f"ended the change of {secret} that was begun before: {again}"]

    def problems(self) -> Iterator[ConfigurationError]:
        """Yield a problem where a role that is not trusted may sign messages as ours."""
        yield from untrusted_owners(self._session, self._where, self._name, _NAMES)
        yield from open_to_others(self._session, self._where, _NAMES, ANNOUNCE)

    def warnings(self) -> Iterator[str]:
        """Yield why schema changes will not be captured once setup has run, and the command for what is left."""
        with translated_errors(self._where):
            missing, off = self._missing(), self._switched_off()
        if not all(step.allowed for step in missing):
            after = ", to run after `tranrepl setup FILE`" if any(step.allowed for step in missing) else ""
            yield (
                f"{self._where}: role {self._session.info.user} may not make what captures schema changes, so they "
                f"stop the publication: {_PRINTED} for a superuser{after}; or set replicate_ddl: false"
            )
        if off:
            yield f"{self._where}: {off}, so schema changes stop the publication"
        with translated_errors(self._where):
            yield from change_warnings(self._session, self._where)

    def left_to_make(self, *, captured: bool = True) -> list[str]:
        """Return the statements for what setup may not make, in their order."""
        with translated_errors(self._where):
            left = [step for step in self._missing(captured=captured) if not step.allowed]
        for problem in self.problems():
            raise problem
        statements = [it.as_string(self._session) for step in left for it in step.statements]
        # The session that runs them has a search path of its own, where others may have made operators.
        return [_part(_SAFE_PATH), *statements] if statements else []

    def why_not_captured(self) -> str | None:
        """Say why schema changes are not captured now; None where they are."""
        with translated_errors(self._where):
            found = self._found()
            triggers = found.triggers
            if not found.secret:
                return f"there is no secret to sign messages with; {_SETUP_MAKES_IT}"
            if triggers.keys() != set(_EVENT_TRIGGERS):
                mine = all(step.allowed for step in self._missing())
                makes = "`tranrepl setup FILE` makes them" if mine else f"{_PRINTED} for a superuser"
                return f"{_NONE_OF_THEM}; {makes}"
            if any(it.enabled != _ENABLED_ALWAYS for it in triggers.values()):
                return "an event trigger that captures them is disabled"
            return self._switched_off()

    def collation(self, oid: int) -> str | None:
        """Return a collation's name in SQL; None where it is gone."""
        with translated_errors(self._where):
            return read_collation(self._session, oid)

    def _remove_announcing(self) -> list[str]:
        """Remove what announces schema changes where no other publication of the database may need it and our role
        may; return what was done."""
        with translated_errors(self._where), self._session.transaction():
            steps = [] if self._has_others() else self._removal_of_announcing(self._found())
            if not all(step.allowed for step in steps):
                return []
            for step in steps:
                for statement in step.statements:
                    self._session.execute(sql.Composed([statement]))
        return [f"removed {step.what} at {self._where}" for step in steps]

    def removal(self) -> list[Step]:
        """Return what is removed with the last publication of the database, in this order."""
        if self._has_others():
            return []
        found = self._found()
        steps = self._removal_of_announcing(found)
        if found.secret:
            drop = sql.SQL("DROP TABLE {}").format(sql.Identifier(SCHEMA, SECRET_TABLE))
            allowed = found.owns_secret or found.owns_schema
            steps.append(Step(f"table {SCHEMA}.{SECRET_TABLE}", (drop,), allowed))
        if found.schema_is_ours and not self._holds_others():
            drop = sql.SQL("DROP SCHEMA {}").format(sql.Identifier(SCHEMA))
            steps.append(Step(f"schema {SCHEMA}", (drop,), found.owns_schema))
        return steps

    def _has_others(self) -> bool:
        """Return whether the database has another publication of ours."""
        other = self._session.execute(_OTHER_PUBLICATIONS, [self._name]).fetchone()
        return other is not None and bool(other[0])

    def _removal_of_announcing(self, found: _Found) -> list[Step]:
        steps = [
            Step(f"event trigger {name}", (sql.SQL("DROP EVENT TRIGGER {}").format(sql.Identifier(name)),), it.owned)
            for name, it in sorted(found.triggers.items())
        ]
        if found.versions:
            names = sql.SQL(", ").join(sql.SQL(f"{SCHEMA}.{it}") for it in sorted(found.versions))
            allowed = found.owns_functions or found.owns_schema
            steps.append(
                Step(
                    f"functions of schema {SCHEMA}",
                    (sql.SQL("DROP FUNCTION {}").format(names),),
                    allowed,
                )
            )
        return steps

    def _missing(self, *, captured: bool = True) -> list[Step]:
        found = self._found()
        steps = [*self._schema_steps(found), *self._secret_steps(found)]
        return [*steps, *self._function_steps(found), *self._trigger_steps(found)] if captured else steps

    def _schema_steps(self, found: _Found) -> Iterator[Step]:
        if not found.schema:
            yield Step(f"created schema {SCHEMA}", (sql.SQL(_part(_SCHEMA)),), found.may_create)

    def _secret_steps(self, found: _Found) -> Iterator[Step]:
        if not found.secret:
            # Another role may make it for ours.
            grant = sql.SQL("GRANT SELECT, UPDATE ON {} TO {}").format(sql.Identifier(SCHEMA, SECRET_TABLE), self._role)
            statements = (sql.SQL(_part(_SECRET)), grant)
            yield Step("made the secret that signs messages in the log", statements, found.may_create)

    def _function_steps(self, found: _Found) -> Iterator[Step]:
        if found.is_older():
            grant = sql.SQL("GRANT EXECUTE ON FUNCTION {} TO {}").format(sql.SQL(f"{SCHEMA}.{ANNOUNCE}"), self._role)
            yield Step(
                f"{'replaced' if found.versions else 'created'} the functions that capture schema changes",
                (sql.SQL(_part(_FUNCTIONS)), grant),
                found.may_create and found.owns_functions,
            )

    def _trigger_steps(self, found: _Found) -> Iterator[Step]:
        enabled = {name for name, it in found.triggers.items() if it.enabled == _ENABLED_ALWAYS}
        if enabled != set(_EVENT_TRIGGERS):
            may = found.owns_all() and all(it.owned for it in found.triggers.values())
            yield Step(
                "created the event triggers that capture schema changes",
                # What the functions' former owner made of them is not called.
                tuple(sql.SQL(_part(it)) for it in (_OWNERSHIP, _FUNCTIONS, _TRIGGERS)),
                may and self._may_create_event_triggers(),
            )

    def _may_create_event_triggers(self) -> bool:
        """Try it with a function that is not there: the right is looked at first, and not every server gives it to
        superusers alone."""
        try:
            with self._session.transaction():
                self._session.execute(
                    "CREATE EVENT TRIGGER tranrepl_none ON sql_drop EXECUTE FUNCTION pg_catalog.tranrepl_none()"
                )
        except InsufficientPrivilege:
            return False
        except UndefinedFunction:
            return True
        return False

    def _switched_off(self) -> str | None:
        row = self._session.execute(
            "SELECT setting FROM pg_catalog.pg_settings WHERE name = 'event_triggers'"
        ).fetchone()
        return "event_triggers is off" if row == ("off",) else None

    def _holds_others(self) -> bool:
        row = self._session.execute(
            _OTHER_OBJECTS, [SCHEMA, SECRET_TABLE, [f"{SCHEMA}.{it}" for it in FUNCTIONS]]
        ).fetchone()
        return row is not None and bool(row[0])

    def _found(self) -> _Found:
        rights = self._session.execute(_FOUND, [_SCHEMA_COMMENT, SCHEMA, SECRET_TABLE]).fetchone()
        found = _Found(*(rights or [False] * 6))
        for signature, comment, owned in self._session.execute(_FOUND_FUNCTIONS, [SCHEMA, _NAMES]):
            found.versions[signature] = _version(comment)
            found.owns_functions &= owned
        for name, enabled, owned in self._session.execute(_FOUND_TRIGGERS, [list(_EVENT_TRIGGERS)]):
            found.triggers[name] = _FoundTrigger(enabled, owned)
        return found


@cache
def _parts() -> dict[str, str]:
    """Return the parts of `announce.sql` by name; what stands before the first by the empty name."""
    script = files("tranrepl.publisher.postgres").joinpath("announce.sql").read_text(encoding="utf-8")
    start, *named = re.split(r"^-- part: (.+)$", script, flags=re.MULTILINE)
    return {"": start, **dict(zip(named[::2], named[1::2], strict=True))}


def _part(name: str) -> str:
    """Return the statements of a part, without the comments before the first of them."""
    return re.sub(r"\A(--.*\n|\n)+", "", _parts()[name]).strip()


def _version(comment: str | None) -> int:
    """Return the version that a function's comment names; 0 where it names none."""
    number = (comment or "").removeprefix(_COMMENT)
    return int(number) if number.isdecimal() else 0
