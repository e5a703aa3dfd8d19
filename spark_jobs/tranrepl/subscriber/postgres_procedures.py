"""PostgreSQL text of what applies a command: generated procedures, and the same as plain statements.

Layout: SQL Server's generated procedures ("Transactional Articles - Specify How Changes Are Propagated", examples).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from psycopg import sql

from tranrepl.article import RegisteredArticle
from tranrepl.call_syntax import Argument, Image, arguments
from tranrepl.catalogue import ColumnDescription, Identity, TableDescription
from tranrepl.commands import Operation
from tranrepl.errors import ROW_NOT_FOUND
from tranrepl.postgres import qualified
from tranrepl.subscriber.procedure_names import procedure_name

SCHEMA = "public"
"""Where procedures and the model's tables live, as in SQL Server's `dbo`."""
LONGEST_NAME = 63
MOST_ARGUMENTS = 100
MASK_TYPE = "bytea"

_DESTINATION = sql.Identifier("destination")
Reference = Callable[[Argument], sql.Composable]


@dataclass(frozen=True, slots=True)
class Target:
    """An article at this Subscriber: `columns` are the destination's, in the article's order."""

    article: RegisteredArticle
    table: TableDescription
    columns: tuple[ColumnDescription, ...]

    def type_name(self, argument: Argument) -> str:
        return MASK_TYPE if argument.position is None else self.columns[argument.position].base_type_name


@dataclass(frozen=True, slots=True)
class Procedure:
    name: str
    parameters: tuple[tuple[str, str], ...]
    """Names and types."""
    body: str

    def create(self) -> sql.Composed:
        """The `CREATE PROCEDURE` statement."""
        declared = sql.SQL(", ").join(
            sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(type_name)) for name, type_name in self.parameters
        )
        return sql.SQL("CREATE OR REPLACE PROCEDURE {}({})\nLANGUAGE plpgsql\nAS {}").format(
            sql.Identifier(SCHEMA, self.name), declared, _dollar_quoted(self.body)
        )


def generated_procedure(target: Target, operation: Operation) -> Procedure:
    """The procedure that applies `operation`: CALL for INSERT and DELETE, SCALL for UPDATE."""
    passed = arguments(target.article, operation)
    body = sql.SQL("\n#variable_conflict use_variable\nBEGIN\n{}END\n").format(
        statements(target, operation, lambda argument: sql.Identifier(argument.name))
    )
    return Procedure(
        procedure_name(operation, target.article.destination, LONGEST_NAME),
        tuple((argument.name, target.type_name(argument)) for argument in passed),
        body.as_string(None),
    )


def statements(target: Target, operation: Operation, value: Reference) -> sql.Composable:
    """PL/pgSQL that applies one command whose arguments are `value(argument)`."""
    match operation:
        case Operation.INSERT:
            return _insert(target, value)
        case Operation.UPDATE:
            return _update(target, value)
        case Operation.DELETE:
            return _delete(target, value)
        case Operation.TRUNCATE:
            return sql.SQL("  DELETE FROM {};\n").format(qualified(target.table.name))
        case _:
            raise ValueError(f"{operation!r} is not applied")


def _insert(target: Target, value: Reference) -> sql.Composable:
    # Values of GENERATED ALWAYS identity columns come from the Publisher.
    overriding = sql.SQL(" OVERRIDING SYSTEM VALUE" if _has_identity(target.columns) else "")
    return sql.SQL("  INSERT INTO {} ({}){}\n  VALUES ({});\n").format(
        qualified(target.table.name),
        sql.SQL(", ").join(sql.Identifier(column.name) for column in target.columns),
        overriding,
        sql.SQL(", ").join(value(argument) for argument in arguments(target.article, Operation.INSERT)),
    )


def _update(target: Target, value: Reference) -> sql.Composable:
    """Two branches as SQL Server's: key columns stand in SET only where the mask says that the key changed."""
    passed = arguments(target.article, Operation.UPDATE)
    by_column = {argument.position: argument for argument in passed if argument.image is Image.AFTER}
    mask = value(passed[-1])
    key = set(target.article.key_positions)
    settable = [at for at, column in enumerate(target.columns) if column.identity is not Identity.ALWAYS]
    fixed = [at for at in range(len(target.columns)) if at not in settable]

    def update(positions: Sequence[int]) -> sql.Composable:
        return sql.SQL("  UPDATE {} AS {} SET\n    {}\n  WHERE {};\n").format(
            qualified(target.table.name),
            _DESTINATION,
            sql.SQL(",\n    ").join(_assignment(target, at, value(by_column[at]), mask) for at in positions),
            _key_matches(target, passed, value),
        )

    others = [at for at in settable if at not in key]
    settable_key = [at for at in settable if at in key]
    if not settable:
        apply: sql.Composable = sql.SQL("  PERFORM FROM {} AS {} WHERE {} FOR UPDATE;\n").format(
            qualified(target.table.name), _DESTINATION, _key_matches(target, passed, value)
        )
    elif settable_key and others:
        apply = sql.SQL("  IF {} THEN\n{}  ELSE\n{}  END IF;\n").format(
            sql.SQL(" OR ").join(_bit_is_set(at, mask) for at in settable_key), update(settable), update(others)
        )
    else:
        apply = update(settable)
    return sql.Composed([_refuse_fixed(target, fixed, mask), apply, _row_not_found(target, "UPDATE", passed, value)])


def _delete(target: Target, value: Reference) -> sql.Composable:
    passed = arguments(target.article, Operation.DELETE)
    return sql.Composed(
        [
            sql.SQL("  DELETE FROM {} AS {} WHERE {};\n").format(
                qualified(target.table.name), _DESTINATION, _key_matches(target, passed, value)
            ),
            _row_not_found(target, "DELETE", passed, value),
        ]
    )


def _assignment(target: Target, at: int, value: sql.Composable, mask: sql.Composable) -> sql.Composable:
    column = sql.Identifier(target.columns[at].name)
    return sql.SQL("{} = CASE WHEN {} THEN {} ELSE {}.{} END").format(
        column, _bit_is_set(at, mask), value, _DESTINATION, column
    )


def _bit_is_set(at: int, mask: sql.Composable) -> sql.Composable:
    bit = sql.Literal(1 << at % 8)
    return sql.SQL("get_byte({}, {}) & {} = {}").format(mask, sql.Literal(at // 8), bit, bit)


def _key_matches(target: Target, passed: Iterable[Argument], value: Reference) -> sql.Composable:
    return sql.SQL(" AND ").join(
        sql.SQL("{}.{} = {}").format(_DESTINATION, sql.Identifier(target.columns[at].name), value(argument))
        for argument, at in _key_arguments(passed)
    )


def _key_arguments(passed: Iterable[Argument]) -> list[tuple[Argument, int]]:
    return [
        (argument, argument.position)
        for argument in passed
        if argument.image is Image.BEFORE and argument.position is not None
    ]


def _refuse_fixed(target: Target, fixed: Sequence[int], mask: sql.Composable) -> sql.Composable:
    if not fixed:
        return sql.SQL("")
    columns = ", ".join(target.columns[at].name for at in fixed)
    return sql.SQL(
        "  IF {} THEN\n    RAISE EXCEPTION USING ERRCODE = '428C9', MESSAGE = {}, HINT = {};\n  END IF;\n"
    ).format(
        sql.SQL(" OR ").join(_bit_is_set(at, mask) for at in fixed),
        sql.Literal(f"column {columns} of {target.table.name} is GENERATED ALWAYS AS IDENTITY and cannot be updated"),
        sql.Literal(f"ALTER TABLE {target.table.name} ALTER COLUMN … SET GENERATED BY DEFAULT"),
    )


def _row_not_found(target: Target, verb: str, passed: Iterable[Argument], value: Reference) -> sql.Composable:
    pairs = _key_arguments(passed)
    text = (
        f"The row was not found at the Subscriber when applying the replicated {verb} command for Table "
        f"'{target.table.name}' with Primary Key(s): "
    )
    names = [target.columns[at].name.replace("%", "%%") for _, at in pairs]
    template = text.replace("%", "%%") + ", ".join(f"{name} = %s" for name in names)
    return sql.SQL(
        "  IF NOT FOUND THEN\n    RAISE EXCEPTION USING ERRCODE = {}, MESSAGE = format({}, {});\n  END IF;\n"
    ).format(
        sql.Literal(ROW_NOT_FOUND), sql.Literal(template), sql.SQL(", ").join(value(argument) for argument, _ in pairs)
    )


def _has_identity(columns: Iterable[ColumnDescription]) -> bool:
    return any(column.identity is Identity.ALWAYS for column in columns)


def _dollar_quoted(body: str) -> sql.SQL:
    tag = "$procedure$"
    while tag in body:
        tag = f"{tag[:-1]}_$"
    return sql.SQL(f"{tag}{body}{tag}")
