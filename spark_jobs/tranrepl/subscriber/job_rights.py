"""The rights that the jobs need on tables at a Subscriber that are there, whatever its database."""

from __future__ import annotations

from collections.abc import Mapping

from tranrepl.model.commands import Method, Operation
from tranrepl.settings.publication import Article

RIGHTS_OF_JOBS: Mapping[str, tuple[str, ...]] = {
    "msreplication_subscriptions": ("SELECT", "UPDATE"),
    "msreplication_snapshots": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "mssubscription_articles": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "msreplication_objects": ("SELECT",),
    "msrepl_version": ("SELECT",),
}
"""What a delivery and a snapshot do with each."""
_RIGHTS = {Operation.INSERT: "INSERT", Operation.UPDATE: "UPDATE", Operation.DELETE: "DELETE"}


def rights_on_table(article: Article) -> tuple[str, ...]:
    """Return the rights that are needed on the article's table. A custom procedure may run with rights of its own."""
    rights = [right for operation, right in _RIGHTS.items() if _touches(article, operation)]
    return ("SELECT", *rights) if rights else ()


def _touches(article: Article, operation: Operation) -> bool:
    propagation = article.propagation(operation)
    return propagation.method is not Method.NONE and propagation.procedure is None
