"""Partitions in the log: which article a relation is of, and what a TRUNCATE of some partitions means to theirs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tranrepl.model.article import RegisteredArticle
from tranrepl.model.position import FIRST_POSITION
from tranrepl.model.propagation import Truncation
from tranrepl.model.schema_change import SchemaChange
from tranrepl.publisher.postgres.lsn import lsn_of
from tranrepl.publisher.postgres.partitions import articles_by_table, partitioned
from tranrepl.publisher.postgres.relations import Relation, RelationMismatch, fits
from tranrepl.schema.partitions import emptied_partitions, removes_rows


class PublishedRelations:
    """The articles of relations that the log names. `by_table`: those of the articles' tables, and of the partitions
    that are or were known, by oid; None: of those that are registered."""

    def __init__(
        self, articles: Sequence[RegisteredArticle], by_table: Mapping[int, RegisteredArticle] | None = None
    ) -> None:
        self._by_table = dict(articles_by_table(articles, ()) if by_table is None else by_table)
        below = [it for number, it in self._by_table.items() if number != it.source_object_id]
        self._partitioned = {it.source_object_id: it for it in [*partitioned(articles), *below]}

    def article(self, object_id: int) -> RegisteredArticle | None:
        return self._by_table.get(object_id)

    def find(self, chosen: Callable[[RegisteredArticle], bool]) -> RegisteredArticle | None:
        """Return the first article of which that is true."""
        return next(filter(chosen, self._by_table.values()), None)

    def of_article(self, article: RegisteredArticle) -> list[int]:
        """Return the oids of an article's table, and of its partitions."""
        root = article.source_object_id
        if root not in self._partitioned:
            # One transaction may alter thousands of tables.
            return [root] if root in self._by_table else []
        return [number for number, it in self._by_table.items() if it.source_object_id == root]

    def replace(self, article: RegisteredArticle) -> None:
        """Let a definition be in force in the place of its article's earlier one, also for partitions that are new."""
        division = article.source_definition.division
        new = [it.object_id for it in division.partitions if it.holds_rows] if division is not None else []
        for number in [*self.of_article(article), *new]:
            self._by_table[number] = article
        if article.source_object_id in self._partitioned:
            self._partitioned[article.source_object_id] = article

    def remove(self, article: RegisteredArticle) -> None:
        """Let an article have no tables any more."""
        for number in self.of_article(article):
            del self._by_table[number]
        self._partitioned.pop(article.source_object_id, None)

    def lost_partition(self, relation: Relation, commit_lsn: int) -> RelationMismatch | None:
        """Return a problem where a relation that is of no article, and is no partition now, may have been a partition
        of one: made and gone before the log was read.

        The publication has nothing but the articles' tables, and what it had before its file was changed.
        """
        for article in self._partitioned.values():
            if not _is_ignored(article, commit_lsn) and fits(article, relation):
                name = relation.name_of(article)
                return RelationMismatch(
                    article,
                    name,
                    f"partition {name} was detached or dropped before its changes were read",
                    rows_unknown=f"partition {name} was made, and detached or dropped, before the log was read",
                )
        return None

    def truncated(self, object_ids: Iterable[int], commit_lsn: int) -> Truncated:
        """Return the tables of a TRUNCATE, one for each article; and those that were emptied in part. Those of an
        article whose new beginning has it in it are left out."""
        named: dict[int, list[int]] = defaultdict(list)
        found = Truncated()
        for object_id in object_ids:
            article = self._by_table.get(object_id)
            if article is None or article.source_object_id not in self._partitioned:
                found.tables.append(object_id)
            else:
                named[article.source_object_id].append(object_id)
        for root, emptied in named.items():
            article = self._partitioned[root]
            if _is_ignored(article, commit_lsn):
                continue
            if self._are_all(article, emptied) or not _is_replicated(article):
                # Any of them stands for the table: the log announces each, and not the table itself.
                found.tables.append(emptied[0])
            else:
                found.in_part.append((article, emptied))
        return found

    def _are_all(self, article: RegisteredArticle, emptied: Sequence[int]) -> bool:
        known = {} if article.source_file is None else article.source_file.partitions or {}
        gone = {number for number, it in known.items() if it.gone}
        below = {number for number, it in self._by_table.items() if it.source_object_id == article.source_object_id}
        return below - gone - {article.source_object_id} <= set(emptied)


@dataclass(slots=True)
class Truncated:
    """What one TRUNCATE emptied."""

    tables: list[int] = field(default_factory=list)
    in_part: list[tuple[RegisteredArticle, list[int]]] = field(default_factory=list)
    """Articles, and the partitions of theirs that were emptied while others were not."""


def emptied_in_part(article: RegisteredArticle, emptied: Sequence[int], article_id: int) -> SchemaChange | None:
    """Return what a TRUNCATE of some partitions does at the Subscribers, as a change to a definition of that number;
    None where it leaves open which rows there are."""
    partitions = emptied_partitions(article, emptied)
    if partitions is None:
        return None
    return SchemaChange(
        source=article.source,
        article_id=article.article_id,
        new_article_id=article_id,
        tag="TRUNCATE TABLE",
        partitions=tuple(partitions),
    )


def _is_replicated(article: RegisteredArticle) -> bool:
    """Return whether a TRUNCATE goes to the Subscribers; else it is refused or ignored, whatever it empties."""
    return article.truncate is Truncation.REPLICATE and removes_rows(article)


def _is_ignored(article: RegisteredArticle, commit_lsn: int) -> bool:
    return article.begins_after != FIRST_POSITION and commit_lsn <= lsn_of(article.begins_after)


def emptied_mismatch(article: RegisteredArticle, emptied: Sequence[int]) -> RelationMismatch:
    """Return the problem of a TRUNCATE that leaves open which rows the article has now."""
    known = {} if article.source_file is None else article.source_file.partitions or {}
    names = ", ".join(sorted(str(known[it].table) for it in emptied if it in known)) or "made since the last run"
    reason = f"partition {names} was truncated by itself"
    return RelationMismatch(article, article.source, reason, rows_unknown=reason)
