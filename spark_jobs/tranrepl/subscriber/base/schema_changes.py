"""Schema changes at a Subscriber: which are still to be done, and the definition that its table and procedures have.

A part that somebody has done by hand is left alone and noted; one that contradicts the table that is there is refused.
The definition is recorded at the Subscriber (`MSsubscription_articles`): it moves in the transaction of the change, or
where DDL ends a transaction, right after it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping

import sqlalchemy as sa

from tranrepl.errors import ConfigurationError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.call_syntax import arguments
from tranrepl.model.commands import Operation
from tranrepl.schema.words import change_in_words
from tranrepl.subscriber.base.definitions import Definitions
from tranrepl.subscriber.base.key_changes import UnfitRows
from tranrepl.subscriber.batching.steps import SchemaStep
from tranrepl.subscriber.procedure_names import PREFIXES
from tranrepl.subscriber.subscription import SubscriptionKey


class SchemaChanges(ABC):
    """One session's schema changes. Each method works in whatever transaction is open, or is not."""

    def __init__(
        self,
        core: sa.Connection,
        key: SubscriptionKey,
        where: str,
        articles: Mapping[int, RegisteredArticle],
        unfit: UnfitRows,
    ) -> None:
        """Set where they are applied; `articles` have the definitions by `article_id`."""
        self._articles = articles
        self._unfit = unfit
        self._where = where
        self._definitions = Definitions(core, key)

    def apply(self, step: SchemaStep) -> list[str]:
        """Alter the destination, replace its procedures, and record the definition that both now have, as part of the
        open transaction; return what was done and what was left alone.

        Raises ConfigurationError where a person must do something before, TransientError where the table's lock is not
        to be had. Then the transaction must be rolled back.
        """
        if not self.is_pending(step):
            return self.already_applied(step)
        done = self._change(step, step.new) if step.new is not None else []
        self.record(step)
        return [*self.notes(step), *done]

    @abstractmethod
    def _change(self, step: SchemaStep, new: RegisteredArticle) -> list[str]:
        """Alter the table and its procedures; return what was done and what was left alone."""

    def is_pending(self, step: SchemaStep) -> bool:
        """Return whether the table and the procedures stand at the definition before the change; not where they stand
        at the new one or a later one.

        Definitions of an article get growing numbers; its name may be another one's meanwhile. Raises
        ConfigurationError where the table has an earlier one than the change begins with.
        """
        recorded = self._definitions.recorded()
        names = [str(it.source) for it in (step.old, step.change, step.new) if it is not None]
        by_name = next((recorded[it] for it in names if it in recorded), None)
        table, known = step.old.source_object_id, self._articles
        of_table = (it for it in recorded.values() if it in known and known[it].source_object_id == table)
        found = max(of_table, default=by_name)
        if found is not None and found < step.old.article_id:
            raise ConfigurationError(
                f"article {step.change.source}: {self._where}: its table has definition {found}, and the schema change "
                f"that comes next begins with definition {step.old.article_id}: one between was skipped",
                remedy=f"`tranrepl reinitialize FILE -s NAME --article {step.change.source}` brings the table to the "
                "article's definition and copies its rows",
                article=str(step.change.source),
            )
        return found is None or found == step.old.article_id

    def already_applied(self, step: SchemaStep) -> list[str]:
        return [f"{self._where}: {change_in_words(step.change)}: the table is of that definition already"]

    def record(self, step: SchemaStep) -> None:
        """Record the definition that the table and its procedures stand at from now on."""
        self._definitions.move(step.old, step.new)

    def notes(self, step: SchemaStep) -> list[str]:
        """Return what a change leaves alone at the Subscribers, in words."""
        article = f"{self._where}: article {step.change.source}"
        said = [f"{article}: {note}" for note in step.change.notes]
        if step.new is not None:
            said += [f"{article}: {it}" for it in _other_columns(step.old, step.new)]
        else:
            said.append(f"{article} ended ({step.change.tag}): table {step.old.destination} stays as it is")
        return said


def _other_columns(old: RegisteredArticle, new: RegisteredArticle) -> Iterator[str]:
    """Yield, in words, each custom procedure whose parameters carry columns of other names than before: nobody can tell
    by the signature whether one knows of it."""
    for operation in PREFIXES:
        procedure = new.propagation(operation).procedure
        if procedure is None:
            continue
        before, now = _carried(old, operation), _carried(new, operation)
        other = {before[it]: name for it, name in now.items() if it in before and before[it] != name}
        if other:
            changed = ", ".join(f"{was} is {name} now" for was, name in other.items())
            yield f"procedure {procedure} is your own, and stays: {changed}"


def _carried(article: RegisteredArticle, operation: Operation) -> dict[str, str]:
    """Return the columns that the parameters of a call carry, by the parameters' names."""
    passed = arguments(article, operation)
    return {it.name: article.columns[it.position].name for it in passed if it.position is not None}
