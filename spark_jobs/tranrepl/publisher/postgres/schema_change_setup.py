"""What setup makes at a PostgreSQL Publisher so that its log announces schema changes: a schema, the secret that signs
messages, functions and event triggers. All publications of a database share them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from psycopg import sql
from psycopg.errors import InsufficientPrivilege, UndefinedFunction

from tranrepl.errors import ConfigurationError
from tranrepl.postgres.session import SAFE_PATH, Session, translated_errors
from tranrepl.publisher.postgres.message_secret import (
    SCHEMA,
    SECRET_TABLE,
    change_secret,
    make_secret,
    untrusted_owners,
)
from tranrepl.publisher.postgres.schema_change_functions import ANNOUNCE_CALL, ANNOUNCE_EVENT, FUNCTIONS
from tranrepl.publisher.postgres.schema_messages import read_collation

_VERSION = 13
_COMMENT = "tranrepl schema changes, version "
_SCHEMA_COMMENT = "made by tranrepl setup"
_TAGS = (
    "ALTER DOMAIN",
    "ALTER INDEX",
    "ALTER PUBLICATION",
    "ALTER SCHEMA",
    "ALTER TABLE",
    "ALTER TYPE",
    "CREATE INDEX",
    "CREATE PUBLICATION",
    "CREATE SCHEMA",
    "CREATE TABLE",
)
_PRINTED = "`tranrepl script FILE --publisher` prints the statements"
_SETUP_MAKES_IT = "`tranrepl setup FILE` makes it"
_NONE_OF_THEM = "the event triggers that announce them are not there"
_ENABLED_ALWAYS = "A"


@dataclass(frozen=True, slots=True)
class _EventTrigger:
    name: str
    event: str
    function: str
    tags: tuple[str, ...] = ()

    def statements(self) -> list[sql.Composable]:
        name = sql.Identifier(self.name)
        tags = sql.SQL(", ").join(map(sql.Literal, self.tags))
        when = sql.SQL(" WHEN TAG IN ({})").format(tags) if self.tags else sql.SQL("")
        return [
            sql.SQL("CREATE EVENT TRIGGER {} ON {}{} EXECUTE FUNCTION {}()").format(
                name, sql.SQL(self.event), when, sql.Identifier(SCHEMA, self.function)
            ),
            sql.SQL("ALTER EVENT TRIGGER {} ENABLE ALWAYS").format(name),
        ]


_EVENT_TRIGGERS = (
    _EventTrigger("tranrepl_ddl_end", "ddl_command_end", ANNOUNCE_EVENT, _TAGS),
    _EventTrigger("tranrepl_drop", "sql_drop", ANNOUNCE_EVENT),
    _EventTrigger("tranrepl_rewrite", "table_rewrite", ANNOUNCE_EVENT),
)
_RIGHTS = """
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
SELECT p.oid::pg_catalog.regprocedure::text, pg_catalog.obj_description(p.oid, 'pg_proc'),
       pg_catalog.pg_has_role(p.proowner, 'USAGE')
  FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
 WHERE n.nspname = %s AND p.proname = ANY (%s)
"""
_FOUND_TRIGGERS = """
SELECT evtname, evtenabled::text, coalesce(evttags, '{}')::text[], pg_catalog.pg_has_role(evtowner, 'USAGE')
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
    tags: tuple[str, ...]
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

    def older(self) -> dict[str, str]:
        """Return the statements for functions that are missing or of an earlier version, by the functions'
        signatures.
        """
        return {it: text for it, text in FUNCTIONS.items() if self.versions.get(it, 0) < _VERSION}


class SchemaChangeSetup:
    """What announces schema changes in one database, for the publication of this name and the others there."""

    def __init__(self, session: Session, name: str) -> None:
        self._session = session
        self._name = name
        self._where = f"Publisher {session.info.dbname}"
        self._role = sql.Identifier(session.info.user)

    def set_up(self, *, announced: bool = True, new_secret: bool = False) -> list[str]:
        """Make what is missing or of an earlier version, as far as our role may; without `announced`, what messages are
        signed with alone; `new_secret` makes that another one. Returns what was done, in words. Raises
        ConfigurationError where another role that is not trusted owns a part of it."""
        for problem in self.problems():
            raise problem
        removed = [] if announced else self._remove_announcing()
        changed = self._change_secret() if new_secret else []
        return [*removed, *self._make(announced=announced), *changed]

    def _make(self, *, announced: bool) -> list[str]:
        with translated_errors(self._where), self._session.transaction():
            # Two set-ups at once make it once.
            self._session.execute("SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtext(%s))", [_COMMENT])
            steps = [step for step in self._missing(announced=announced) if step.allowed]
            for step in steps:
                for statement in step.statements:
                    self._session.execute(sql.Composed([statement]))
        return [f"{step.what} at {self._where}" for step in steps]

    def _change_secret(self) -> list[str]:
        with translated_errors(self._where), self._session.transaction():
            change_secret(self._session)
        return [f"changed the secret that signs messages in the log at {self._where}"]

    def problems(self) -> Iterator[ConfigurationError]:
        """Yield a problem where a role that is not trusted may sign messages as ours."""
        yield from untrusted_owners(self._session, self._where, [ANNOUNCE_EVENT, ANNOUNCE_CALL])

    def warnings(self) -> Iterator[str]:
        """Yield why schema changes will not be announced once setup has run, and the command for what is left."""
        with translated_errors(self._where):
            missing, off = self._missing(), self._switched_off()
        if not all(step.allowed for step in missing):
            after = ", to run after `tranrepl setup FILE`" if any(step.allowed for step in missing) else ""
            yield (
                f"{self._where}: role {self._session.info.user} may not make what announces schema changes, so they "
                f"stop the publication: {_PRINTED} for a superuser{after}; or set replicate_ddl: false"
            )
        if off:
            yield f"{self._where}: {off}, so schema changes stop the publication"

    def left_to_make(self, *, announced: bool = True) -> list[str]:
        """Return the statements for what setup may not make, in their order."""
        with translated_errors(self._where):
            left = [step for step in self._missing(announced=announced) if not step.allowed]
        for problem in self.problems():
            raise problem
        statements = [it.as_string(self._session) for step in left for it in step.statements]
        # Whoever runs them has a path of their own, where others may have made operators.
        return [f"SET search_path = {SAFE_PATH}", *statements] if statements else []

    def why_unannounced(self) -> str | None:
        """Say why schema changes are not announced now; None where they are."""
        with translated_errors(self._where):
            found = self._found()
            triggers = found.triggers
            if not found.secret:
                return f"there is no secret to sign messages with; {_SETUP_MAKES_IT}"
            if any(it.name not in triggers for it in _EVENT_TRIGGERS):
                mine = all(step.allowed for step in self._missing())
                makes = "`tranrepl setup FILE` makes them" if mine else f"{_PRINTED} for a superuser"
                return f"{_NONE_OF_THEM}; {makes}"
            if any(it.enabled != _ENABLED_ALWAYS for it in triggers.values()):
                return "an event trigger that announces them is disabled"
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
            names = sql.SQL(", ").join(sql.SQL(it) for it in sorted(found.versions))
            allowed = found.owns_functions or found.owns_schema
            steps.append(
                Step(
                    f"functions {', '.join(sorted(found.versions))}",
                    (sql.SQL("DROP FUNCTION {}").format(names),),
                    allowed,
                )
            )
        return steps

    def _missing(self, *, announced: bool = True) -> list[Step]:
        found = self._found()
        steps = [*self._schema_steps(found), *self._secret_steps(found)]
        return [*steps, *self._function_steps(found), *self._trigger_steps(found)] if announced else steps

    def _schema_steps(self, found: _Found) -> Iterator[Step]:
        if not found.schema:
            schema = sql.Identifier(SCHEMA)
            yield Step(
                f"created schema {SCHEMA}",
                (
                    sql.SQL("CREATE SCHEMA {}").format(schema),
                    sql.SQL("COMMENT ON SCHEMA {} IS {}").format(schema, sql.Literal(_SCHEMA_COMMENT)),
                    sql.SQL("GRANT USAGE ON SCHEMA {} TO PUBLIC").format(schema),
                ),
                found.may_create,
            )

    def _secret_steps(self, found: _Found) -> Iterator[Step]:
        if found.secret:
            return
        yield Step(
            "made the secret that signs messages in the log",
            make_secret(self._role),
            found.may_create,
        )

    def _function_steps(self, found: _Found) -> Iterator[Step]:
        older = found.older()
        if not older:
            return
        statements: list[sql.Composable] = []
        for signature, text in older.items():
            function = sql.SQL(signature)
            comment = sql.Literal(f"{_COMMENT}{_VERSION}")
            statements.append(sql.SQL(text))
            statements.append(sql.SQL("COMMENT ON FUNCTION {} IS {}").format(function, comment))
            statements.append(sql.SQL("REVOKE ALL ON FUNCTION {} FROM PUBLIC").format(function))
            if ANNOUNCE_CALL in signature:
                # Whoever makes the function for us.
                statements.append(sql.SQL("GRANT EXECUTE ON FUNCTION {} TO {}").format(function, self._role))
        replaced = bool(found.versions)
        yield Step(
            f"{'replaced' if replaced else 'created'} the functions that announce schema changes",
            tuple(statements),
            found.may_create and found.owns_functions,
        )

    def _trigger_steps(self, found: _Found) -> list[Step]:
        wanted = [(it, found.triggers.get(it.name)) for it in _EVENT_TRIGGERS]
        lacking = [(it, there) for it, there in wanted if not _fits(it, there)]
        if not lacking:
            return []
        may = self._may_create_event_triggers() and all(there is None or there.owned for _, there in lacking)
        statements: list[sql.Composable] = []
        if not may:
            # Whoever replaces a function may act as whoever fires it: it goes to the owner of the triggers.
            function = sql.Identifier(SCHEMA, ANNOUNCE_EVENT)
            statements.append(sql.SQL("ALTER FUNCTION {}() OWNER TO CURRENT_USER").format(function))
        for trigger, there in lacking:
            if there is not None:
                statements.append(sql.SQL("DROP EVENT TRIGGER {}").format(sql.Identifier(trigger.name)))
            statements += trigger.statements()
        return [Step("created the event triggers that announce schema changes", tuple(statements), may)]

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
        row = self._session.execute(_OTHER_OBJECTS, [SCHEMA, SECRET_TABLE, list(FUNCTIONS)]).fetchone()
        return row is not None and bool(row[0])

    def _found(self) -> _Found:
        rights = self._session.execute(_RIGHTS, [_SCHEMA_COMMENT, SCHEMA, SECRET_TABLE]).fetchone()
        found = _Found(*(rights or [False] * 6))
        names = [ANNOUNCE_EVENT, ANNOUNCE_CALL]
        for signature, comment, owned in self._session.execute(_FOUND_FUNCTIONS, [SCHEMA, names]):
            found.versions[signature] = _version(comment)
            found.owns_functions &= owned
        triggers = [it.name for it in _EVENT_TRIGGERS]
        for name, enabled, tags, owned in self._session.execute(_FOUND_TRIGGERS, [triggers]):
            found.triggers[name] = _FoundTrigger(enabled, tuple(sorted(tags)), owned)
        return found


def _fits(wanted: _EventTrigger, found: _FoundTrigger | None) -> bool:
    return found is not None and found.enabled == _ENABLED_ALWAYS and found.tags == wanted.tags


def _version(comment: str | None) -> int:
    """Return the version that a function's comment names; 0 where it names none."""
    number = (comment or "").removeprefix(_COMMENT)
    return int(number) if number.isdecimal() else 0
