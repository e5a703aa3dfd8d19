"""Articles of which an interrupted snapshot has copied rows: the next one does not copy these again.

The rows of articles that are whole are of the earlier snapshot's point of the log, and the log is delivered to them
from there on. Ranges of keys are brought to the later snapshot's point, which has the others
(`snapshot.bringing_forward`). Tables that foreign keys tie to one that is copied now are copied again: rows of two
points need not obey the keys together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tranrepl.distributor.tables import SubscriptionStatus
from tranrepl.model.propagation import Truncation
from tranrepl.printable import named
from tranrepl.snapshot.opening import OpenSnapshot
from tranrepl.subscriber.snapshot import CopiedArticle, SnapshotArticle, referring


@dataclass(frozen=True, slots=True)
class CopiedBefore:
    """Articles by name."""

    whole: dict[str, CopiedArticle]
    """They are not copied again."""
    partly: dict[str, CopiedArticle]
    """Their ranges are not copied again."""

    @property
    def began(self) -> dict[str, bytes]:
        """Return by article the last transaction that its rows show."""
        return {name: it.xact_seqno for name, it in {**self.whole, **self.partly}.items()}


def _is_told_by_commands(it: SnapshotArticle) -> bool:
    """Return whether the article's rows are the table's, and commands tell how they become the Publisher's."""
    article = it.article
    return it.owned.condition is None and article.not_repaired is None and article.truncate is not Truncation.IGNORE


def copied_before(plan: OpenSnapshot, say: Callable[[str], None], *, ranges: bool = False) -> CopiedBefore:
    """Return the articles of which rows are not to be copied again; `say` reports them, and those that were copied and
    are copied again. Ranges only where they can be brought forward here (`ranges`).

    The distribution database must know them as on their way since that very transaction: else the snapshot was called
    off, or one of the databases was restored, and commands after the transaction may be gone.
    """
    copied = plan.target.copied(plan.articles)
    if not copied:
        return CopiedBefore({}, {})
    states = plan.opened.database.snapshots.article_states(plan.opened.subscription)
    begun = {it: state.xact_seqno for it, state in states.items() if state.status is SubscriptionStatus.INITIATED}
    ids = {it.name: it.article.article_id for it in plan.articles}
    altered = {name for name, it in copied.items() if it.article_id != ids[name]}
    called_off = {name for name, it in copied.items() if begun.get(name) != it.xact_seqno} - altered
    tied = plan.target.tied(plan.articles, plan.foreign_keys.wanted)
    again = referring(tied, {it for it in ids if it not in copied or not copied[it].is_whole} | altered | called_off)
    whole = {name: it for name, it in copied.items() if name not in again}
    excluded = altered | called_off | {name for name, others in tied.items() if others}
    excluded |= {it.name for it in plan.articles if not _is_told_by_commands(it)}
    partly = {name: it for name, it in copied.items() if ranges and not it.is_whole and name not in excluded}
    if whole:
        say(f"{named(sorted(whole), 'article')}: copied by an interrupted snapshot, and not copied again")
    if partly:
        say(
            f"{named(sorted(partly), 'article')}: copied in part by an interrupted snapshot, and the rest is copied now"
        )
    kept = {**whole, **partly}
    others = copied.keys() - kept.keys() - altered - called_off
    by_key = {name for name in others if copied[name].is_whole or tied[name]}
    reasons = {
        "the definition has changed": altered,
        "the snapshot was called off": called_off,
        "a foreign key refers to or from a table that is copied now": by_key,
        "it was not whole, and which of its rows have changed since is not looked for": others - by_key,
    }
    for reason, names in reasons.items():
        if names:
            say(f"{named(sorted(names), 'article')}: copied by an interrupted snapshot, and copied again: {reason}")
    return CopiedBefore(whole, partly)
