"""The primary key of a destination whose article got another one."""

from __future__ import annotations

from dataclasses import dataclass

from tranrepl.model.article import RegisteredArticle
from tranrepl.model.schema_change import ColumnAction
from tranrepl.subscriber.batching.steps import SchemaStep


@dataclass(frozen=True, slots=True)
class KeyChange:
    """Columns of the old and of the new primary key, in key order, by the names that they have after the change."""

    before: list[str]
    now: list[str]


def key_change(step: SchemaStep) -> KeyChange | None:
    """Return what becomes of the primary key; None where it stays, or the article's rows are not copied again."""
    if step.new is None or step.change.rows_unknown is None:
        return None
    change = KeyChange(_renamed_key(step), _key_of(step.new))
    return None if change.before == change.now else change


def _key_of(article: RegisteredArticle) -> list[str]:
    return [article.columns[at].name for at in article.key_positions]


def _renamed_key(step: SchemaStep) -> list[str]:
    names = _key_of(step.old)
    for part in step.change.columns:
        if part.action is ColumnAction.RENAME:
            names = [part.new_name or name if name == part.column else name for name in names]
    return names
