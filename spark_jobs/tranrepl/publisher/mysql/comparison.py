"""A MariaDB Publisher's end of a comparison: its tables are read as wholes, by the session that sees the snapshot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import pymysql

from tranrepl.errors import ConfigurationError
from tranrepl.model.article import PublishedColumn, RegisteredArticle
from tranrepl.model.catalogue import TableDescription
from tranrepl.model.comparison import Checksum, ColumnForm, ComparedEnd, Form, HeldRead, Rows
from tranrepl.model.names import TableName
from tranrepl.model.source_types import Family, source_type
from tranrepl.model.whole_table import ComparedColumn
from tranrepl.mysql.comparison_statements import TEXTS, WholeMariaDbTable, floating, without_zeros
from tranrepl.mysql.session import Session, error_number, quoted
from tranrepl.publisher.mysql.column_types import DeclaredType
from tranrepl.publisher.mysql.row_filters import condition

_INTERVAL = "interval"
_REWRITTEN = ("jsonb", "money")
"""Types of PostgreSQL that write a value otherwise than it was delivered."""
_NUMBERS = (Family.SMALLINT, Family.INTEGER, Family.BIGINT, Family.NUMERIC)
_FLOATS = (Family.REAL, Family.DOUBLE)
_MOMENTS = (Family.DATE, Family.TIMESTAMP)
_FORM_OF_NATIVE: Mapping[Family, Form] = {
    **dict.fromkeys((*_NUMBERS, Family.BOOLEAN), Form.NUMBER),
    **dict.fromkeys(_FLOATS, Form.FLOATING),
    Family.CHARACTER: Form.CHARACTER,
    Family.BYTES: Form.HEXADECIMAL,
    Family.DATE: Form.DATE,
    Family.TIMESTAMP: Form.TIMESTAMP,
    Family.TIMESTAMP_WITH_ZONE: Form.TIMESTAMP,
    Family.TIME: Form.TIME,
}
"""The forms in which this end can write what a PostgreSQL Subscriber has in a type of its own."""
_WRITTEN: Mapping[Form, tuple[Family, ...]] = {
    Form.NUMBER: (*_NUMBERS, *_FLOATS, Family.BOOLEAN),
    Form.FLOATING: _FLOATS,
    Form.DATE: _MOMENTS,
    Form.TIMESTAMP: _MOMENTS,
    Form.TIME: (Family.OTHER,),
    Form.HEXADECIMAL: (Family.BYTES,),
}
"""The types of the Publisher whose values can be written in a form; those that are not here take any."""


_NO_FUNCTION = 1305


def require_hash(session: Session, where: str) -> None:
    """Raise ConfigurationError where the server has no MD5, which MySQL has in a component since 9.6."""
    try:
        session.execute("SELECT MD5('')")
    except pymysql.err.Error as error:
        if error_number(error) != _NO_FUNCTION:
            raise
        raise ConfigurationError(
            f"{where}: rows are compared by MD5, which the server does not have",
            remedy="INSTALL COMPONENT 'file://component_classic_hashing'",
        ) from error


@dataclass(frozen=True, slots=True)
class SnapshotThread:
    """The session that sees the snapshot, asked from a thread: it lives in this process alone."""

    rows: Callable[[str], Rows]
    threads: ThreadPoolExecutor

    def read(self, statement: str) -> HeldRead:
        return HeldRead(self, statement)

    def start(self, statement: str) -> Future[Rows]:
        return self.threads.submit(self.rows, statement)


@dataclass(frozen=True, slots=True)
class MySqlComparison:
    where: str
    place: SnapshotThread
    tables: Mapping[TableName, TableDescription]
    declared: Mapping[TableName, Mapping[str, DeclaredType]]
    """The types of the articles' columns, by name."""
    size: int

    def describe(self, articles: Sequence[RegisteredArticle]) -> Mapping[TableName, TableDescription]:
        return {it.source: self.tables[it.source] for it in articles if it.source in self.tables}

    def native_hashes(self) -> tuple[object, ...]:
        """Return nothing: the hash functions are none that another database has."""
        return ()

    def table_bytes(self, articles: Sequence[RegisteredArticle]) -> int:
        del articles
        return self.size

    def forms(self, article: RegisteredArticle, wanted: Sequence[ColumnForm]) -> list[ColumnForm]:
        return [self._form(article, column, form) for column, form in zip(article.columns, wanted, strict=True)]

    def _form(self, article: RegisteredArticle, column: PublishedColumn, wanted: ColumnForm) -> ColumnForm:
        form = wanted
        if wanted.form is Form.NATIVE:
            there = source_type(wanted.type_name).family
            form = ColumnForm(_FORM_OF_NATIVE.get(there, Form.OUTPUT), wanted.type_name)
        family = source_type(column.type_name).family
        is_known = form.form in (*_WRITTEN, *TEXTS, Form.OUTPUT)
        is_known &= wanted.type_name not in _REWRITTEN
        if not is_known or family not in _WRITTEN.get(form.form, (family,)):
            raise ConfigurationError(
                f"{self.where}: column {column.name} of table {article.source}, of type {column.type_name}, cannot be "
                f"compared with a Subscriber's column of type {wanted.type_name or 'another kind'}",
                remedy="give the Subscriber's column the type that setup gives it, or validate the other articles",
                article=str(article.source),
            )
        return form

    def end(
        self, article: RegisteredArticle, forms: Sequence[ColumnForm], checksum_by: Checksum, part_bytes: int
    ) -> ComparedEnd:
        del checksum_by, part_bytes
        declared = self.declared[article.source]
        columns = tuple(_compared(declared[it.name], it, form) for it, form in zip(article.columns, forms, strict=True))
        table = f"{quoted(article.source.schema)}.{quoted(article.source.table)}"
        if article.filter is not None:
            spelled = {name: it.spelling for name, it in declared.items()}
            chosen = condition(article.filter, article.source, spelled).sql
            table = f"(SELECT * FROM {table} WHERE {chosen}) AS tranrepl_compared"  # noqa: S608 - quoted
        return ComparedEnd(WholeMariaDbTable(table, columns, article.key_positions), self.place)


def _compared(declared: DeclaredType, column: PublishedColumn, form: ColumnForm) -> ComparedColumn:
    """Return the column in a form; it is known by the text that the log has."""
    name, shown = quoted(column.name), declared.text(column.name)
    return ComparedColumn(_text(declared, column, form, name, shown), shown, form.form.plain)


def _text(declared: DeclaredType, column: PublishedColumn, form: ColumnForm, name: str, shown: str) -> str:
    family = source_type(column.type_name).family
    match form.form:
        case Form.HEXADECIMAL:
            return f"LOWER(HEX({name}))"
        case Form.FLOATING:
            # As the log has it: the server itself shows six digits of four bytes.
            return floating(f"CAST({name} AS DOUBLE)")
        case Form.NUMBER if family in _FLOATS:
            return without_zeros(f"CAST(CAST({name} AS DECIMAL(65,30)) AS CHAR)")
        case Form.NUMBER if family is Family.NUMERIC and declared.second:
            return without_zeros(shown)
        case Form.OUTPUT if form.type_name == _INTERVAL and declared.first:
            return without_zeros(shown)
        case Form.TIMESTAMP | Form.DATE | Form.TIME:
            return TEXTS[form.form].format(name)
    return TEXTS.get(form.form, "{}").format(shown)
