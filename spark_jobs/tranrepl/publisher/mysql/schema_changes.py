"""Schema changes of a MariaDB Publisher: a statement in the log names the table, and the catalogue has its definition.

The catalogue is that of now. It is the one after the statement where no other statement on the table is in the log up
to now; else it holds from now on, and the article is reinitialized.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

import numpy as np
import pymysql

from tranrepl.errors import ConfigurationError, TransientError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.catalogue import TableDescription
from tranrepl.model.names import TableName
from tranrepl.model.schema_change import SchemaChange
from tranrepl.model.table_definition import DefinedColumn, TableDefinition
from tranrepl.mysql.session import Session, connect, error_number, quoted, translated_errors
from tranrepl.publisher.log_range import NeedsArticleId
from tranrepl.publisher.mysql.catalogue import column_number, describe_tables, table_problems
from tranrepl.publisher.mysql.column_types import DeclaredType, declared
from tranrepl.publisher.mysql.dump import blocks
from tranrepl.publisher.mysql.events import EventType, Query, query_of
from tranrepl.publisher.mysql.positions import position_of
from tranrepl.publisher.mysql.server import ServerLog, end_of_log
from tranrepl.publisher.mysql.statements import Effect, meaning, why_rows_unknown
from tranrepl.publisher.mysql.table_maps import Flavor
from tranrepl.schema.difference import NO_KEY, Change, Reinitialize, Stop, difference, notes_of_what_stays
from tranrepl.schema.messages import AlteredTable

_LOOKS = 3
_NO_TABLE = (1049, 1146)
_AGAIN = (
    "it was altered again before the log reader read the first change, so that the values of that time are not known"
)
_WHOLE = re.compile(r"-?\d+")
_NUMBER = re.compile(r"-?\d+(?:\.(?P<fraction>\d+))?")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d(?P<time> \d\d:\d\d:\d\d(?:\.(?P<fraction>\d+))?)?")
_INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint")
_NUMBERS = (*_INTEGERS, "decimal", "float", "double")
_VARYING = ("varchar", "tinytext", "text", "mediumtext", "longtext")


@dataclass(slots=True)
class Followed:
    """What a statement makes of articles: the changes to the Subscribers, and the definitions from there on."""

    changes: list[SchemaChange] = field(default_factory=list)
    definitions: list[RegisteredArticle] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Column:
    """A column as the catalogue spells it. `default` is in SQL."""

    type: DeclaredType
    charset: str
    default: str | None
    takes_null: bool
    counts: bool


@dataclass(frozen=True, slots=True)
class _Now:
    """A table of now; `again`: another statement altered it since."""

    table: TableDescription | None
    columns: Mapping[int, _Column]
    problem: ConfigurationError | None
    again: bool


class MySqlDialect:
    """The `PublisherDialect` of a table of now. It reads no filter: columns of a table with one are not followed."""

    def __init__(self, columns: Mapping[int, _Column]) -> None:
        self._columns = columns

    def filter_columns(self, *_: str) -> tuple[str, ...]:
        return ()

    def renamed_filter(self, text: str, *_: object) -> str:
        return text

    def rewrites_values(self, before: DefinedColumn, now: DefinedColumn) -> bool:
        of = self._columns[now.ordinal]
        return not of.type.holds(before.type_oid, of.charset)


def followed(
    log: ServerLog, query: Query, end: int, articles: Sequence[RegisteredArticle], article_ids: Sequence[int]
) -> Followed:
    """Return what becomes of the articles whose tables a statement altered, which ends at this place of the log.

    Raises ConfigurationError where that cannot be followed, NeedsArticleId, TransientError.
    """
    found, ids = Followed(), iter(article_ids)
    tables = _tables_now(log, end, [it.source for it in articles])
    for it in articles:
        _follow(log, query, it, tables[it.source], found, ids)
    return found


def _follow(
    log: ServerLog, query: Query, article: RegisteredArticle, now: _Now, found: Followed, ids: Iterator[int]
) -> None:
    tag = _tag(query)
    is_of_index = _is_of_index(query, article)
    if now.again and is_of_index:
        # It changes no column, and what comes later brings the definition.
        return
    if now.table is None or now.table.definition is None:
        if now.again:
            happened = f"{tag}; then it was altered again, and is not there any more"
            raise _refused(log, article, happened, "take the article out of the file")
        note = f"the table was dropped or renamed; {article.destination} stays as it is"
        found.changes.append(
            SchemaChange(
                source=article.source, article_id=article.article_id, new_article_id=None, tag=tag, notes=(note,)
            )
        )
        found.notices.append(f"{article.source}: {note}")
        return
    if article.filter is not None and not is_of_index:
        raise _refused(log, article, f"{tag}, and its row filter cannot be evaluated on rows of both definitions")
    if not now.table.definition.key:
        raise NO_KEY.error(article, tag)
    if now.problem is not None:
        raise now.problem
    change = _change(query, article, now, tag)
    changed, notes = change.article, list(change.notes)
    if change.is_new:
        number = next(ids, None)
        if number is None:
            raise NeedsArticleId
        changed = changed.model_copy(update={"article_id": number})
        found.changes.append(
            SchemaChange(
                source=article.source,
                article_id=article.article_id,
                new_article_id=number,
                tag=tag,
                columns=change.columns,
                rows_unknown=change.rows_unknown,
                notes=change.notes,
            )
        )
    found.definitions.append(changed)
    found.notices += [f"{article.source}: {it}" for it in notes]


def _is_of_index(query: Query, article: RegisteredArticle) -> bool:
    found = meaning(query, [article.source])
    return found is not None and found.effect is Effect.INDEXED


def _change(query: Query, article: RegisteredArticle, now: _Now, tag: str) -> Change:
    """Return what becomes of an article. Raises ConfigurationError where that cannot be followed."""
    if now.table is None or now.table.definition is None:
        raise ValueError("there is no table")
    definition = now.table.definition
    values = {it: _existing_value(column) for it, column in now.columns.items()}
    altered = AlteredTable(
        article.source_object_id,
        tag,
        definition,
        existing_values={it: value for it, (is_known, value) in values.items() if is_known and value is not None},
        unread_values=frozenset(it for it, (is_known, _) in values.items() if not is_known),
    )
    change = difference(article, altered, MySqlDialect(now.columns))
    if isinstance(change, Stop):
        raise change.error(article, tag)
    unread = [it.name for it in change.article.columns if now.columns[it.ordinal].type.type_name is None]
    if unread:
        way_on = f"leave column {unread[0]} out of the article's `columns`, or give it another type"
        raise Stop(f"column {unread[0]} has a type whose values cannot be read", way_on).error(article, tag)
    added = [it.name for it in definition.columns if it.ordinal not in article.source_definition.by_ordinal]
    reason = _AGAIN if now.again else why_rows_unknown(query, [it.name for it in definition.columns], added)
    reason = reason or _why_filled(article, definition)
    if reason is None or change.rows_unknown is not None:
        notes = (*change.notes, *notes_of_what_stays(article.source_definition, altered))
        return change if change.is_new else replace(change, notes=notes)
    begun = change.article.model_copy(update={"begins_after": definition.holds_from})
    return Reinitialize(begun, change.columns, notes=change.notes, is_new=True, reason=reason)


def _why_filled(article: RegisteredArticle, now: TableDefinition) -> str | None:
    """Return why the server may have given rows a value that had none; None where it has not."""
    before = article.source_definition.by_ordinal
    for it in now.columns:
        known = before.get(it.ordinal)
        if known is not None and (it.not_null, it.is_identity) > (known.not_null, known.is_identity):
            return f"column {it.name} takes no NULL any more, or counts: the server may have given rows another value"
    return None


def _refused(
    log: ServerLog, article: RegisteredArticle, happened: str, way_on: str = "make the Subscribers' tables fit"
) -> ConfigurationError:
    return ConfigurationError(
        f"{log.where}: table {article.source} was altered: {happened}. Everything committed before that is stored; "
        "nothing after it is read",
        remedy=f"{way_on}; then `tranrepl setup FILE`",
        article=str(article.source),
    )


def _tag(query: Query) -> str:
    words = re.findall(r"[A-Za-z]+", query.text.decode(errors="replace")[:40])
    return " ".join(words[:2]).upper()


def _tables_now(log: ServerLog, end: int, names: Sequence[TableName]) -> dict[TableName, _Now]:
    """Return the tables as they are now, with all that the log says of them by now. Raises TransientError."""
    with connect(log.connection) as session, translated_errors(log.where):
        for _ in range(_LOOKS):
            before = end_of_log(session, log.flavor)
            described = describe_tables(session, names, position_of(before))
            if any(_is_there(session, it) for it in names if it not in described):
                continue
            columns = {it: _columns(session, log.flavor, it) for it in described}
            problems = {
                it: next(table_problems(session, log.where, log.flavor, table), None) for it, table in described.items()
            }
            places = _altered_again(log, end, end_of_log(session, log.flavor), names)
            # None while they were looked at: then they are so since `before`.
            if all(place <= before for place, _ in places):
                again = {name for _, name in places}
                return {it: _Now(described.get(it), columns.get(it, {}), problems.get(it), it in again) for it in names}
    raise TransientError(f"{log.where}: table {names[0]} is being altered again and again while it is looked at")


def _is_there(session: Session, table: TableName) -> bool:
    """Return whether a table exists that the catalogue has not shown: one is exchanged for another in two steps. Fails
    where our role may not read the table: then the catalogue does not show it either."""
    try:
        session.execute(f"SELECT 1 FROM {quoted(table.schema)}.{quoted(table.table)} LIMIT 0")  # noqa: S608 - quoted
    except pymysql.err.Error as error:
        if error_number(error) in _NO_TABLE:
            return False
        raise
    return True


def _altered_again(log: ServerLog, after: int, until: int, names: Sequence[TableName]) -> list[tuple[int, TableName]]:
    """Return the statements between two places that alter one of these tables: where each ends, and the table."""
    found: list[tuple[int, TableName]] = []
    if until <= after:
        return found
    with closing(blocks(log, after, until)) as read:
        for block in read:
            for at in np.flatnonzero(block.are(EventType.QUERY, EventType.QUERY_COMPRESSED)).tolist():
                if block.places[at] > until:
                    return found
                query = query_of(block, at)
                for name in names:
                    it = meaning(query, [name])
                    if it is not None and it.effect in (Effect.ALTERED, Effect.NAMED):
                        found.append((int(block.places[at]), name))
    return found


def _columns(session: Session, flavor: Flavor, table: TableName) -> dict[int, _Column]:
    rows = session.execute(
        "SELECT column_name, column_type, COALESCE(character_set_name, ''), column_default, is_nullable, extra "
        "FROM information_schema.columns WHERE table_schema = %s AND table_name = %s",
        [table.schema, table.table],
    )
    return {
        column_number(name): _Column(
            declared(spelling),
            charset,
            default if flavor is Flavor.MARIADB else _in_sql(default, spelling, extra),
            nullable == "YES",
            "auto_increment" in extra.lower(),
        )
        for name, spelling, charset, default, nullable, extra in rows
    }


def _in_sql(default: str | None, spelling: str, extra: str) -> str | None:
    """Return a default in SQL, of which MySQL's catalogue has the value."""
    if default is None or declared(spelling).name in _NUMBERS:
        return default
    return f"({default})" if "DEFAULT_GENERATED" in extra else "'" + default.replace("'", "''") + "'"


def _existing_value(column: _Column) -> tuple[bool, str | None]:
    """Return whether it is known what rows have that were there before a column was added, and the value in the log's
    text form: the column's default, where that is a constant that is read."""
    default, of = column.default, column.type
    if column.counts:
        return False, None
    if default is None or default == "NULL":
        value = None if column.takes_null else _first_value(of)
        return column.takes_null or value is not None, value
    value = _constant(of, default)
    return value is not None, value


def _first_value(of: DeclaredType) -> str | None:
    """Return what a column that is NOT NULL and has no default gives rows that were there before."""
    if of.name in _INTEGERS:
        return "0"
    if of.name in ("char", *_VARYING):
        return ""
    return None


def _constant(of: DeclaredType, default: str) -> str | None:
    if of.name in _INTEGERS:
        return str(int(default)) if _WHOLE.fullmatch(default) else None
    if of.name == "decimal" and "zerofill" not in of.spelling:
        number = _NUMBER.fullmatch(default)
        return default if number is not None and len(number["fraction"] or "") == (of.second or 0) else None
    if len(default) < 2 or default[0] != "'" or default[-1] != "'" or "\\" in default:
        return None
    text = default[1:-1].replace("''", "'")
    if of.name in ("date", "datetime"):
        moment = _MOMENT.fullmatch(text)
        fits = moment is not None and (moment["time"] is None) == (of.name == "date")
        return text if moment is not None and fits and len(moment["fraction"] or "") == (of.first or 0) else None
    is_kept = of.name in (*_VARYING, "enum") or (of.name == "char" and text == text.rstrip(" "))
    return text if is_kept else None
