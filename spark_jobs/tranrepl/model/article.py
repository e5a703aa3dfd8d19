"""An article as it was registered: which columns of which table travel, and how each operation is applied."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache, cached_property
from typing import TYPE_CHECKING, Annotated, Any, cast

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, TypeAdapter, model_serializer

from tranrepl.model.commands import Method, Operation, Propagation
from tranrepl.model.names import Table, TableName
from tranrepl.model.position import FIRST_POSITION, StoredPosition
from tranrepl.model.propagation import DeleteCommand, InsertCommand, Truncation, UpdateCommand, UpdatePolicy
from tranrepl.model.table_definition import TableDefinition
from tranrepl.model.table_file import TableFile


class PublishedColumn(BaseModel):
    """A column of the published table that travels as a value. Generated columns never do."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    ordinal: int
    """Which of the table's columns it is: a number that renaming keeps."""
    type_oid: int
    type_modifier: int
    type_name: str
    """The type in SQL, as the Publisher's catalogue formats it."""
    key_ordinal: Annotated[int, Field(ge=1)] | None = None
    """Place in the primary key, from 1; None outside the key."""
    earlier_types: tuple[tuple[int, int], ...] = ()
    """Types (number and modifier) that the column had when it was registered before: the log may still hold them."""
    earlier_names: tuple[str, ...] = ()
    """Names that the column had under earlier definitions."""
    unique: bool = False
    """A column of the primary key, of another unique constraint or of a unique index."""
    lob: bool = False
    """Its before image does not travel where it is not part of the key."""


class ArticleNames(BaseModel):
    """What an article's file says of its table: it stays as it is when a schema change gives things other names."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: Table
    columns: tuple[str, ...] | None
    """None where the file does not choose columns: then the article gains those that are added."""
    filter: str | None
    lob_columns: tuple[str, ...]
    divided: bool = False
    """The file asks for a destination that is divided into partitions as the table is."""


class RegisteredArticle(BaseModel):
    """One row of `msarticles`. An article whose columns or commands change gets a new `article_id`, so that stored
    commands are always read with the definition they were written with."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    article_id: int
    source: Table
    destination: Table
    source_object_id: int
    """The table's number at the Publisher, which it keeps when it is renamed (`Publisher`)."""
    columns: tuple[PublishedColumn, ...]
    ins_cmd: InsertCommand
    upd_cmd: UpdateCommand
    del_cmd: DeleteCommand
    filter: str | None = None
    """Row filter, a condition in the Publisher's SQL."""
    update_policy: UpdatePolicy = UpdatePolicy.PAIRS
    truncate: Truncation = Truncation.REPLICATE
    source_file: TableFile | None = None
    """The table's file when it was last looked at, with the published columns; None where nobody has yet."""
    begins_after: StoredPosition = FIRST_POSITION
    """Position at which the article was reinitialized, at every subscription: changes committed before it that do not
    fit the definition are skipped."""
    source_definition: TableDefinition
    """The source table as setup found it, or the last schema change left it; whether or not they are replicated."""
    file_names: ArticleNames
    """The names in the article's file when setup last read it."""
    destinations: tuple[tuple[str, Table], ...] = ()
    """Subscriptions that have another destination, by name, with it."""

    @classmethod
    def stored(cls, unread: Mapping[str, str], fields: dict[str, Any]) -> RegisteredArticle:
        """Return an article of all its `fields` but those that are `unread`, in JSON, each until it is asked for: of
        thousands of articles, most are never asked for them."""
        article = cls.__new__(cls)
        for name, value in {
            "__dict__": {**fields, _UNREAD: unread},
            "__pydantic_fields_set__": set(_FIELDS),
            "__pydantic_extra__": None,
            "__pydantic_private__": None,
        }.items():
            object.__setattr__(article, name, value)
        return article

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            unread = self.__dict__.get(_UNREAD, {})
            if name not in unread:
                return super().__getattr__(name)
            value = self.__dict__[name] = _parts()[name].validate_json(unread[name])
            return value

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> RegisteredArticle:
        copied = super().model_copy(update=update, deep=deep)
        fields = copied.__dict__
        unread = {name: it for name, it in fields.pop(_UNREAD, {}).items() if name not in (update or ())}
        for derived in fields.keys() - set(_FIELDS):
            del fields[derived]
        if unread:
            fields[_UNREAD] = unread
        return copied

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RegisteredArticle):
            return False
        mine, its = (it.__dict__.get(_UNREAD, {}) for it in (self, other))
        # What neither has read, and is one text, is not read for that.
        return self is other or all(
            (name in mine and mine[name] is its.get(name)) or getattr(self, name) == getattr(other, name)
            for name in _FIELDS
        )

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Callable[..., RegisteredArticle], tuple[object, ...]]:
        """Travel as it was stored, or as JSON: of thousands of articles, Python's own way takes several times as
        long."""
        unread = self.__dict__.get(_UNREAD)
        if unread is None:
            return self.model_validate_json, (self.model_dump_json(),)
        fields = {name: self.__dict__[name] for name in _FIELDS if name not in unread}
        return self.stored, (unread, fields)

    @model_serializer(mode="wrap")
    def _whole(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        self._fields()
        written = cast("dict[str, Any]", write(self))
        return {name: written[name] for name in _FIELDS if name in written}

    def _fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _FIELDS}

    def at(self, subscription: str) -> RegisteredArticle:
        """Return the article with the destination that it has at a subscription."""
        there = dict(self.destinations).get(subscription, self.destination)
        return self.model_copy(update={"destination": there, "destinations": ()}) if self.destinations else self

    def joined_by(self, joining: Collection[str], destinations: Mapping[str, TableName]) -> RegisteredArticle:
        """Return the article with the destinations of subscriptions that are new, those that have one of their own."""
        others = {name: table for name, table in self.destinations if name not in joining}
        return self.model_copy(update={"destinations": tuple(sorted({**others, **destinations}.items()))})

    @cached_property
    def key_positions(self) -> tuple[int, ...]:
        """Positions (from 0) of the primary key's columns among the published ones, in key order."""
        keyed = [(column.key_ordinal, at) for at, column in enumerate(self.columns) if column.key_ordinal is not None]
        return tuple(at for _, at in sorted(keyed))

    @cached_property
    def unique_positions(self) -> tuple[int, ...]:
        """Positions of the columns of any unique constraint or index, the primary key's among them."""
        return tuple(at for at, column in enumerate(self.columns) if column.unique or column.key_ordinal is not None)

    def propagation(self, operation: Operation) -> Propagation:
        return {
            Operation.INSERT: self.ins_cmd,
            Operation.UPDATE: self.upd_cmd,
            Operation.DELETE: self.del_cmd,
        }[operation]

    @property
    def not_repaired(self) -> str | None:
        """Say why the article's rows are not to be corrected, where they are not meant to be the Publisher's; None
        where they are."""
        for name in ("ins_cmd", "upd_cmd", "del_cmd"):
            propagation: Propagation = getattr(self, name)
            if propagation.procedure is not None:
                return f"{name} calls the custom procedure {propagation.procedure}"
            if propagation.method is Method.NONE:
                return f"{name} is NONE"
        return None

    def same_definition(self, other: RegisteredArticle) -> bool:
        """Return whether commands of the one definition can be read as commands of the other."""
        return self._definition() == other._definition()

    def succeeding(self, before: RegisteredArticle) -> RegisteredArticle:
        """Return this definition as the one after another: with the names and types that columns had, the partitions of
        the table's file that are gone, and where the article was reinitialized."""
        earlier = {column.ordinal: column for column in before.columns}
        columns = tuple(_succeeding(it, earlier.get(it.ordinal)) for it in self.columns)
        file = None if self.source_file is None else self.source_file.with_partitions_of(before.source_file)
        return self.model_copy(update={"columns": columns, "source_file": file, "begins_after": before.begins_after})

    def _definition(self) -> dict[str, object]:
        unlike = ("article_id", "source_file", "begins_after", "source_definition", "file_names")
        return {name: it for name, it in self._fields().items() if name not in unlike}


_UNREAD = "unread"
_FIELDS = tuple(RegisteredArticle.model_fields)


@cache
def _parts() -> Mapping[str, TypeAdapter[Any]]:
    """Return what reads the fields that may be unread."""
    return {
        "columns": TypeAdapter(tuple[PublishedColumn, ...]),
        "source_file": TypeAdapter(TableFile | None),
        "source_definition": TypeAdapter(TableDefinition),
        "file_names": TypeAdapter(ArticleNames),
    }


def _succeeding(column: PublishedColumn, before: PublishedColumn | None) -> PublishedColumn:
    if before is None:
        return column
    types = {*before.earlier_types, (before.type_oid, before.type_modifier)}
    names = {*before.earlier_names, before.name}
    earlier = {
        "earlier_types": tuple(sorted(types - {(column.type_oid, column.type_modifier)})),
        "earlier_names": tuple(sorted(names - {column.name})),
    }
    return column.model_copy(update=earlier)


def newest_definitions(articles: Iterable[RegisteredArticle]) -> dict[int, RegisteredArticle]:
    """Return the last definition of each table, by the table's number: it has the name that the article has now,
    whatever the table was called when earlier commands were stored."""
    return {it.source_object_id: it for it in sorted(articles, key=lambda it: it.article_id)}
