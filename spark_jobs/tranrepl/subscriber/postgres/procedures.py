"""PostgreSQL text of what applies a command: generated procedures, and the same as plain statements.

Every name in it has its schema, operators too: the statements mean the same on any search path, as where a trigger is
to have its role's own.

Layout: SQL Server's generated procedures ("Transactional Articles - Specify How Changes Are Propagated", examples).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from psycopg import sql

from tranrepl.errors import ROW_NOT_FOUND
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.call_syntax import BITMAP, Argument, Image, arguments, key_arguments
from tranrepl.model.catalogue import ColumnDescription, Identity, TableDescription
from tranrepl.model.commands import Operation
from tranrepl.postgres.catalogue import qualified
from tranrepl.postgres.composed_sql import condition_sql, type_sql
from tranrepl.postgres.session import SAFE_PATH
from tranrepl.subscriber.capabilities import NameLimit, NameUnit
from tranrepl.subscriber.command_text import row_not_found_text
from tranrepl.subscriber.procedure_names import PREFIXES, called_procedure, generates

SCHEMA = "public"
"""Where procedures and the model's tables live, as in SQL Server's `dbo`."""
OBJECTS = sql.Identifier(SCHEMA, "msreplication_objects")
PROCEDURE_NAMES = NameLimit(63, NameUnit.BYTES)
MOST_ARGUMENTS = 100
MASK_TYPE = "bytea"

_DESTINATION = sql.Identifier("destination")
_REMOVED = sql.Identifier("removed")
Reference = Callable[[Argument], sql.Composable]


@dataclass(frozen=True, slots=True)
class Target:
    """An article at this Subscriber: `columns` are the destination's, in the article's order."""

    article: RegisteredArticle
    table: TableDescription
    columns: tuple[ColumnDescription, ...]

    def position(self, column: str | None) -> int | None:
        """Return the position of a destination's column among those that are set; None where it is another one."""
        return next((at for at, it in enumerate(self.columns) if it.name == column), None)

    def type_name(self, argument: Argument) -> str:
        return MASK_TYPE if argument.position is None else self.columns[argument.position].base_type_name


def equality(column: ColumnDescription) -> sql.SQL:
    """Return the operator by which a column's key is compared, with its schema."""
    return trusted("OPERATOR(pg_catalog.=)" if column.equality == "=" else column.equality)


@dataclass(frozen=True, slots=True)
class Procedure:
    schema: str
    name: str
    parameters: tuple[tuple[str, str], ...]
    """Names and types."""
    body: str

    @property
    def identifier(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.name)

    def signature(self) -> sql.Composed:
        """Name and parameters."""
        declared = sql.SQL(", ").join(
            sql.SQL("{} {}").format(sql.Identifier(name), type_sql(type_name)) for name, type_name in self.parameters
        )
        return sql.SQL("{}({})").format(self.identifier, declared)

    def create(self) -> sql.Composed:
        """Return the `CREATE PROCEDURE` statement."""
        return sql.SQL("CREATE OR REPLACE PROCEDURE {}\nLANGUAGE plpgsql\nSET search_path = {}\nAS {}").format(
            self.signature(), sql.SQL(SAFE_PATH), _dollar_quoted(self.body)
        )


def called_by(article: RegisteredArticle, operation: Operation) -> sql.Identifier:
    """Return the procedure that a command calls, generated or custom."""
    propagation = article.propagation(operation)
    schema, name = called_procedure(propagation, operation, article.destination, PROCEDURE_NAMES)
    return sql.Identifier(schema or SCHEMA, name)


def procedure(target: Target, operation: Operation) -> Procedure:
    """Return the procedure that applies `operation`. Of a custom one it is the skeleton: the right signature, and a
    body that does what the generated one would do."""
    article = target.article
    body = sql.SQL("\n#variable_conflict use_variable\nBEGIN\n{}END\n").format(
        statements(target, operation, lambda argument: sql.Identifier(argument.name))
    )
    propagation = article.propagation(operation)
    schema, name = called_procedure(propagation, operation, article.destination, PROCEDURE_NAMES)
    passed = arguments(article, operation)
    return Procedure(
        schema or SCHEMA,
        name,
        tuple((argument.name, target.type_name(argument)) for argument in passed),
        body.as_string(None),
    )


def statements(target: Target, operation: Operation, value: Reference) -> sql.Composable:
    """Return PL/pgSQL that applies one command whose arguments are `value(argument)`."""
    match operation:
        case Operation.INSERT:
            return _insert(target, value)
        case Operation.UPDATE:
            return _update(target, value)
        case Operation.DELETE:
            return _delete(target, value)
        case Operation.TRUNCATE:
            return sql.SQL("  {};\n").format(delete_all(target))
        case _:
            raise ValueError(f"{operation!r} is not applied")


def block(target: Target, operation: Operation, value: Reference) -> sql.Composed:
    """Return what `statements` does as a statement by itself."""
    body = sql.SQL("\nBEGIN\n{}END\n").format(statements(target, operation, value)).as_string(None)
    return sql.SQL("DO {}").format(_dollar_quoted(body))


def delete_all(target: Target) -> sql.Composable:
    """Return the deletion of the article's rows: those that its filter lets through, where it has one. Not TRUNCATE,
    which others wait for."""
    # A filter may name its columns by the published table.
    delete = sql.SQL("DELETE FROM {} AS {}").format(
        qualified(target.article.destination), sql.Identifier(target.article.source.table)
    )
    if target.article.filter is None:
        return delete
    return delete + sql.SQL(" WHERE ({})").format(condition_sql(target.article.filter))


def _insert(target: Target, value: Reference) -> sql.Composable:
    # Values of GENERATED ALWAYS identity columns come from the Publisher.
    overriding = sql.SQL(" OVERRIDING SYSTEM VALUE" if _has_identity(target.columns) else "")
    return sql.SQL("  INSERT INTO {} ({}){}\n  VALUES ({});\n").format(
        qualified(target.article.destination),
        sql.SQL(", ").join(sql.Identifier(column.name) for column in target.columns),
        overriding,
        sql.SQL(", ").join(value(argument) for argument in arguments(target.article, Operation.INSERT)),
    )


def update_of(target: Target, changed: Sequence[int], value: Reference) -> sql.Composable:
    """Return what `statements` has for an UPDATE, where its mask names these columns (from 0), all of them
    `settable`."""
    new = _new_values(target, value)
    matches = _key_matches(target, Operation.UPDATE, value)
    apply = _update_statement(target, [_assigned(target, at, new[at]) for at in changed], matches)
    return sql.Composed([apply, _row_not_found(target, Operation.UPDATE, value)])


def settable(target: Target) -> list[int]:
    """Return the columns (from 0) that an UPDATE may set."""
    return [at for at, column in enumerate(target.columns) if column.identity is not Identity.ALWAYS]


def _new_values(target: Target, value: Reference) -> Mapping[int | None, sql.Composable]:
    passed = arguments(target.article, Operation.UPDATE)
    return {argument.position: value(argument) for argument in passed if argument.image is Image.AFTER}


def _update(target: Target, value: Reference) -> sql.Composable:
    passed = arguments(target.article, Operation.UPDATE)
    new, free = _new_values(target, value), settable(target)
    matches = _key_matches(target, Operation.UPDATE, value)
    mask = value(BITMAP) if BITMAP in passed else None
    if mask is not None:
        apply = _update_changed(target, free, new, mask, matches)
    else:
        apply = _update_statement(target, [_assigned(target, at, new[at]) for at in free], matches)
    fixed = [at for at in range(len(target.columns)) if at not in free]
    if fixed:
        apply = _replace_or_update(target, fixed, new, mask, matches, apply)
    return sql.Composed([apply, _row_not_found(target, Operation.UPDATE, value)])


def _update_changed(
    target: Target,
    free: Sequence[int],
    new: Mapping[int | None, sql.Composable],
    mask: sql.Composable,
    matches: sql.Composable,
) -> sql.Composable:
    """Return two branches as SQL Server's: key columns stand in SET only where the mask says that the key changed."""

    def update(positions: Sequence[int]) -> sql.Composable:
        return _update_statement(target, [_assignment(target, at, new[at], mask) for at in positions], matches)

    key = set(target.article.key_positions)
    others = [at for at in free if at not in key]
    free_key = [at for at in free if at in key]
    if not (free_key and others):
        return update(free)
    key_changed = sql.SQL(" OR ").join(bit_is_set(at, mask) for at in free_key)
    return sql.SQL("  IF {} THEN\n{}  ELSE\n{}  END IF;\n").format(key_changed, update(free), update(others))


def _update_statement(target: Target, assignments: Sequence[sql.Composable], matches: sql.Composable) -> sql.Composable:
    table = qualified(target.article.destination)
    if not assignments:
        return sql.SQL("  PERFORM FROM {} AS {} WHERE {} FOR UPDATE;\n").format(table, _DESTINATION, matches)
    return sql.SQL("  UPDATE {} AS {} SET\n    {}\n  WHERE {};\n").format(
        table, _DESTINATION, sql.SQL(",\n    ").join(assignments), matches
    )


def _delete(target: Target, value: Reference) -> sql.Composable:
    return sql.Composed(
        [
            sql.SQL("  DELETE FROM {} AS {} WHERE {};\n").format(
                qualified(target.article.destination), _DESTINATION, _key_matches(target, Operation.DELETE, value)
            ),
            _row_not_found(target, Operation.DELETE, value),
        ]
    )


def _assigned(target: Target, at: int, value: sql.Composable) -> sql.Composable:
    return sql.SQL("{} = {}").format(sql.Identifier(target.columns[at].name), value)


def _differs(target: Target, at: int, value: sql.Composable, matches: sql.Composable) -> sql.Composable:
    """Return the condition that the row has another value in a column that cannot be set."""
    return sql.SQL("EXISTS (SELECT FROM {} AS {} WHERE {} AND ({}.{} OPERATOR(pg_catalog.=) {}) IS NOT TRUE)").format(
        qualified(target.article.destination),
        _DESTINATION,
        matches,
        _DESTINATION,
        sql.Identifier(target.columns[at].name),
        value,
    )


def _assignment(target: Target, at: int, value: sql.Composable, mask: sql.Composable) -> sql.Composable:
    column = sql.Identifier(target.columns[at].name)
    return sql.SQL("{} = CASE WHEN {} THEN {} ELSE {}.{} END").format(
        column, bit_is_set(at, mask), value, _DESTINATION, column
    )


def bit_is_set(at: int, mask: sql.Composable) -> sql.Composable:
    bit = sql.Literal(1 << at % 8)
    return sql.SQL("(pg_catalog.get_byte({}, {}) OPERATOR(pg_catalog.&) {}) OPERATOR(pg_catalog.=) {}").format(
        mask, sql.Literal(at // 8), bit, bit
    )


def _key_matches(target: Target, operation: Operation, value: Reference) -> sql.Composable:
    key = zip(target.article.key_positions, key_arguments(target.article, operation), strict=True)
    return sql.SQL(" AND ").join(
        sql.SQL("{}.{} {} {}").format(
            _DESTINATION, sql.Identifier(target.columns[at].name), equality(target.columns[at]), value(argument)
        )
        for at, argument in key
    )


def _replace_or_update(
    target: Target,
    fixed: Sequence[int],
    new: Mapping[int | None, sql.Composable],
    mask: sql.Composable | None,
    matches: sql.Composable,
    update: sql.Composable,
) -> sql.Composable:
    """Return statements that delete and insert the row where a `fixed` column changes, and update it elsewhere. An
    UPDATE cannot set what is GENERATED ALWAYS AS IDENTITY. It is one statement, at whose end a foreign key that does
    not act finds the row again."""
    if mask is None:
        changed = [_differs(target, at, new[at], matches) for at in fixed]
    else:
        changed = [bit_is_set(at, mask) for at in fixed]
    return sql.SQL("  IF {} THEN\n{}{}  ELSE\n{}  END IF;\n").format(
        sql.SQL(" OR ").join(changed), _refuse_loss(target, fixed), _replace(target, new, mask, matches), update
    )


def _replace(
    target: Target,
    new: Mapping[int | None, sql.Composable],
    mask: sql.Composable | None,
    matches: sql.Composable,
) -> sql.Composable:
    """Return the statement that replaces a row, with all of it that the Subscriber keeps by itself."""
    table, names, values = qualified(target.article.destination), [], []
    for column in target.table.publishable():
        name, at = sql.Identifier(column.name), target.position(column.name)
        old = sql.SQL("{}.{}").format(_REMOVED, name)
        names.append(name)
        if at is None:
            values.append(old)
        elif mask is None:
            values.append(sql.Composed([new[at]]))
        else:
            values.append(sql.SQL("CASE WHEN {} THEN {} ELSE {} END").format(bit_is_set(at, mask), new[at], old))
    return sql.SQL(
        "  WITH {removed} AS (DELETE FROM {table} AS {destination} WHERE {matches} RETURNING {destination}.*)\n"
        "  INSERT INTO {table} ({names}) OVERRIDING SYSTEM VALUE\n  SELECT {values}\n  FROM {removed};\n"
    ).format(
        removed=_REMOVED,
        table=table,
        destination=_DESTINATION,
        matches=matches,
        names=sql.SQL(", ").join(names),
        values=sql.SQL(",\n    ").join(values),
    )


def _refuse_loss(target: Target, fixed: Sequence[int]) -> sql.Composable:
    """Return the refusal of a replacement whose DELETE would take more than the row."""
    columns, table = ", ".join(target.columns[at].name for at in fixed), target.article.destination
    altered = ", ".join(f"ALTER COLUMN {target.columns[at].name} SET GENERATED BY DEFAULT" for at in fixed)
    return sql.SQL(
        "  DECLARE tranrepl_obstacle pg_catalog.text := ({});\n  BEGIN\n    IF tranrepl_obstacle IS NOT NULL THEN\n"
        "      RAISE EXCEPTION USING ERRCODE = '428C9', HINT = {},\n"
        "        MESSAGE = pg_catalog.concat({}, tranrepl_obstacle);\n"
        "    END IF;\n  END;\n"
    ).format(
        sql.SQL(_OBSTACLES).format(table=sql.Literal(qualified(table).as_string(None))),
        sql.Literal(
            f"ALTER TABLE {table} {altered}, then run `tranrepl setup FILE`; or, where a foreign key would act, "
            "not_for_replication: true for the subscription"
        ),
        sql.Literal(f"column {columns} of {table} is GENERATED ALWAYS AS IDENTITY and cannot be updated: "),
    )


_OBSTACLES = """
    SELECT pg_catalog.concat('foreign key ', k.conname, ' of ', k.conrelid::pg_catalog.regclass,
           ' would act on the DELETE that it takes')
      FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_constraint k ON k.oid OPERATOR(pg_catalog.=) t.tgconstraint
     WHERE t.tgrelid OPERATOR(pg_catalog.=) {table}::pg_catalog.regclass AND k.contype OPERATOR(pg_catalog.=) 'f'
       AND k.confrelid OPERATOR(pg_catalog.=) t.tgrelid AND k.confdeltype OPERATOR(pg_catalog.<>) 'a'
       AND (t.tgtype OPERATOR(pg_catalog.&) 8) OPERATOR(pg_catalog.<>) 0
       AND t.tgenabled OPERATOR(pg_catalog.=) ANY (
           CASE WHEN pg_catalog.current_setting('session_replication_role') OPERATOR(pg_catalog.=) 'replica'
           THEN '{{A,R}}' ELSE '{{A,O}}' END::pg_catalog."char"[])
    UNION ALL
    SELECT 'other tables inherit from it'
      FROM pg_catalog.pg_class c JOIN pg_catalog.pg_inherits i ON i.inhparent OPERATOR(pg_catalog.=) c.oid
     WHERE c.oid OPERATOR(pg_catalog.=) {table}::pg_catalog.regclass AND c.relkind OPERATOR(pg_catalog.=) 'r'
    LIMIT 1"""


def _row_not_found(target: Target, operation: Operation, value: Reference) -> sql.Composable:
    text = row_not_found_text(operation, target.article.destination)
    names = [target.columns[at].name.replace("%", "%%") for at in target.article.key_positions]
    template = text.replace("%", "%%") + ", ".join(f"{name} = %s" for name in names)
    key = key_arguments(target.article, operation)
    return sql.SQL(
        "  IF NOT FOUND THEN\n    RAISE EXCEPTION USING ERRCODE = {}, MESSAGE = pg_catalog.format({}, {});\n  END IF;\n"
    ).format(sql.Literal(ROW_NOT_FOUND), sql.Literal(template), sql.SQL(", ").join(map(value, key)))


def _has_identity(columns: Iterable[ColumnDescription]) -> bool:
    return any(column.identity is Identity.ALWAYS for column in columns)


def trusted(text: str) -> sql.SQL:
    """Mark SQL text of our own, or that the catalogue of the same database made. What a definition says never is."""
    return sql.SQL(text)


def ends_with_body(text: str, body: str) -> bool:
    """Return whether a `CREATE PROCEDURE` of ours ends in this body."""
    return text.endswith(f"AS {_dollar_quoted(body).as_string(None)}")


def _dollar_quoted(body: str) -> sql.SQL:
    tag = "$procedure$"
    while tag in body:
        tag = f"{tag[:-1]}_$"
    return sql.SQL(f"{tag}{body}{tag}")


def generated_procedures(target: Target) -> list[Procedure]:
    """Return the procedures that setup makes for this article."""
    return [procedure(target, it) for it in PREFIXES if generates(target.article.propagation(it))]


def custom_procedures(target: Target) -> list[Procedure]:
    """Return the custom procedures that this article calls, as they should be declared."""
    return [procedure(target, it) for it in PREFIXES if target.article.propagation(it).procedure is not None]
