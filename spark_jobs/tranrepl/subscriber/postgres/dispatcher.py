"""The dispatcher: a function of the delivery's own session, which reads staged commands in order and applies each as
its article says. A kind's statements stand in it, or a CALL of what a procedure of your own does."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from psycopg import sql

from tranrepl.model.bitmask import changed_columns
from tranrepl.model.call_syntax import BITMAP, Argument, arguments
from tranrepl.model.commands import Operation
from tranrepl.postgres.composed_sql import type_sql
from tranrepl.subscriber.batching.staging import Kind, StagingLayout
from tranrepl.subscriber.postgres.bulk_rules import ApplyRules, is_called
from tranrepl.subscriber.postgres.destination import Targets
from tranrepl.subscriber.postgres.procedures import (
    Reference,
    Target,
    called_by,
    delete_all,
    settable,
    statements,
    trusted,
    update_of,
)
from tranrepl.subscriber.postgres.users_code import deletion_on_own_path, on_own_path

STAGE = sql.Identifier("pg_temp", "tranrepl_commands")
APPLY = sql.Identifier("pg_temp", "tranrepl_apply")
FAILED_NOTICE = "tranrepl failed command "
SKIPPED_NOTICE = "tranrepl skipped command "
_MOST_CASES = 8

_PACKED = sql.Identifier("tranrepl_packed")

_CAST_AS_THEY_ARE_READ = frozenset(
    {
        *("smallint", "integer", "bigint", "numeric", "real", "double precision", "boolean", "uuid", "json", "jsonb"),
        *("text", "character varying", "bytea"),
        *("date", "timestamp without time zone", "timestamp with time zone"),
    }
)
"""A cast of text to these, or to an array, is what COPY would read. regclass and others have a cast of their own."""

Masks = Mapping[Kind, tuple[bytes, ...]]
"""Which masks of a kind of UPDATE have a statement of their own in the dispatcher."""


def stage_table(layout: StagingLayout) -> sql.Composed:
    slots = [sql.SQL(", {} {}").format(sql.Identifier(slot.name), type_sql(slot.type_name)) for slot in layout.slots]
    if layout.packed:
        slots = [sql.SQL(", {} text[]").format(_PACKED)]
    return sql.SQL(
        "CREATE TEMPORARY TABLE {} (seq integer NOT NULL, kind smallint NOT NULL{}) ON COMMIT DELETE ROWS"
    ).format(STAGE, sql.SQL("").join(slots))


def apply_function(
    layout: StagingLayout,
    targets: Targets,
    rules: ApplyRules,
    skipped_states: Collection[str],
    masks: Masks,
) -> sql.Composed:
    """Return the statement that makes the dispatcher of a layout's kinds."""
    called = {it for it in layout.kinds if is_called(targets[it.article_id].article, it.operation, rules.unedited)}
    code = {it for it in layout.kinds if rules.runs_code(it.article_id, it.operation)}
    branches = [
        _branch(layout, kind, targets[kind.article_id], masks.get(kind, ()), called=kind in called, code=kind in code)
        for kind in layout.kinds
    ]
    # An array that is a variable is taken apart once, and not for each element.
    variable, unpack = ("\n  tranrepl_packed text[];", "    tranrepl_packed := tranrepl_command.tranrepl_packed;\n")
    dispatch = _cases(branches, 0)
    body = sql.SQL(
        "\n#variable_conflict use_variable\nDECLARE tranrepl_command record;\n  tranrepl_path text;{}\nBEGIN\n"
        "  FOR tranrepl_command IN SELECT * FROM {} ORDER BY seq LOOP\n{}{}  END LOOP;\n"
        # The notice names the command; the error itself goes on untouched.
        "EXCEPTION WHEN OTHERS THEN\n  RAISE NOTICE '{}%', tranrepl_command.seq;\n  RAISE;\nEND\n"
    ).format(
        sql.SQL(variable if layout.packed else ""),
        STAGE,
        sql.SQL(unpack if layout.packed else ""),
        _skipping(dispatch, skipped_states) if skipped_states else dispatch,
        sql.SQL(FAILED_NOTICE),
    )
    # A small table is read whole, as it was planned; by then it may hold every version that this transaction made.
    planned = "" if called else "SET enable_seqscan = off "
    if layout.packed and not called:
        # A plan for the values themselves would have the whole array in it, for each of its elements.
        planned += "SET plan_cache_mode = force_generic_plan "
    return sql.SQL("CREATE OR REPLACE FUNCTION {}() RETURNS void LANGUAGE plpgsql {}AS {}").format(
        APPLY, trusted(planned), sql.Literal(body.as_string(None))
    )


def _cases(branches: Sequence[sql.Composable], first: int) -> sql.Composable:
    """Return the branch of a command's kind, kinds counted from `first`. CASE asks one branch after the other, which
    with hundreds of them takes longer than what it leads to: so many are halved first."""
    if len(branches) > _MOST_CASES:
        half = len(branches) // 2
        return sql.SQL("    IF tranrepl_command.kind < {} THEN\n{}    ELSE\n{}    END IF;\n").format(
            sql.Literal(first + half), _cases(branches[:half], first), _cases(branches[half:], first + half)
        )
    cases = [
        sql.SQL("    WHEN {} THEN\n{}").format(sql.Literal(first + place), branch)
        for place, branch in enumerate(branches)
    ]
    return sql.SQL("    CASE tranrepl_command.kind\n{}    END CASE;\n").format(sql.SQL("").join(cases))


def _skipping(dispatch: sql.Composable, states: Collection[str]) -> sql.Composable:
    """Put each command in a block of its own, which undoes it alone."""
    conditions = sql.SQL(" OR ").join(sql.SQL("SQLSTATE {}").format(sql.Literal(state)) for state in sorted(states))
    return sql.SQL(
        "   BEGIN\n{}   EXCEPTION WHEN {} THEN\n"
        "    RAISE NOTICE USING MESSAGE = {} || tranrepl_command.seq, DETAIL = SQLSTATE || ' ' || SQLERRM;\n   END;\n"
    ).format(dispatch, conditions, sql.Literal(SKIPPED_NOTICE))


def _branch(
    layout: StagingLayout, kind: Kind, target: Target, masks: Sequence[bytes], *, called: bool, code: bool
) -> sql.Composable:
    places = layout.places[kind]

    def value(argument: Argument) -> sql.Composable:
        if layout.packed:
            return _unpacked(places[argument], layout.slots[places[argument]].type_name)
        return sql.SQL("tranrepl_command.{}").format(sql.Identifier(layout.slots[places[argument]].name))

    if kind.operation is Operation.TRUNCATE:
        return deletion_on_own_path(delete_all(target)) if code else statements(target, kind.operation, value)
    if called or code:
        return _on_own_path(target, kind.operation, value, called=called)
    # To set a column to itself, where the mask does not name it, costs as much as to find the row.
    free, columns = set(settable(target)), len(target.columns)
    changed = {mask: [at - 1 for at in changed_columns(mask, columns)] for mask in masks}
    own = sql.SQL("").join(
        sql.SQL("     IF {} = {}::bytea THEN\n{}      CONTINUE;\n     END IF;\n").format(
            value(BITMAP), sql.Literal(f"\\x{mask.hex()}"), update_of(target, positions, value)
        )
        for mask, positions in changed.items()
        if free.issuperset(positions)
    )
    return own + statements(target, kind.operation, value)


def _on_own_path(target: Target, operation: Operation, value: Reference, *, called: bool) -> sql.Composed:
    """Return what applies a command on the role's own path. Its values are variables, evaluated before on ours."""
    names = {it: sql.Identifier(f"tranrepl_{place}") for place, it in enumerate(arguments(target.article, operation))}
    declared = [
        sql.SQL("{} {} := {};").format(name, type_sql(target.type_name(it)), value(it)) for it, name in names.items()
    ]
    if called:
        passed = sql.SQL(", ").join(names.values())
        made = sql.SQL("      CALL {}({});\n").format(called_by(target.article, operation), passed)
    else:
        made = sql.Composed([statements(target, operation, names.__getitem__)])
    return sql.SQL("     DECLARE {}\n     BEGIN\n{}     END;\n").format(sql.SQL(" ").join(declared), on_own_path(made))


def _unpacked(place: int, type_name: str) -> sql.Composed:
    """Return an element of the packed slots, as its type."""
    element = sql.SQL("{}[{}]").format(_PACKED, sql.Literal(place + 1))
    if type_name in _CAST_AS_THEY_ARE_READ or type_name.endswith("[]"):
        return sql.SQL("{}::{}").format(element, type_sql(type_name))
    return sql.SQL("(ARRAY[{}]::text::{}[])[1]").format(element, type_sql(type_name))
