"""Articles that an interrupted snapshot has copied whole: the next one leaves them as they are.

Their rows are of the earlier snapshot's point of the log, and the log is delivered to them from there on. Tables that
foreign keys tie to one that is copied now are copied again: rows of two points need not obey the keys together.
"""

from __future__ import annotations

from collections.abc import Callable

from tranrepl.distributor.tables import SubscriptionStatus
from tranrepl.printable import named
from tranrepl.snapshot.opening import OpenSnapshot
from tranrepl.subscriber.snapshot import referring


def copied_before(plan: OpenSnapshot, say: Callable[[str], None]) -> dict[str, bytes]:
    """Return the articles that are not to be copied again, each with the last transaction that its rows show; `say`
    reports them, and those that were copied and are copied again.

    The distribution database must know them as on their way since that very transaction: else the snapshot was called
    off, or one of the databases was restored, and commands after the transaction may be gone.
    """
    copied = plan.target.copied(plan.articles)
    if not copied:
        return {}
    states = plan.opened.database.snapshots.article_states(plan.opened.subscription)
    begun = {it: state.xact_seqno for it, state in states.items() if state.status is SubscriptionStatus.INITIATED}
    ids = {it.name: it.article.article_id for it in plan.articles}
    altered = {name for name, it in copied.items() if it.article_id != ids[name]}
    called_off = {name for name, it in copied.items() if begun.get(name) != it.xact_seqno} - altered
    tied = plan.target.tied(plan.articles, plan.foreign_keys.wanted)
    again = referring(tied, ids.keys() - copied.keys() | altered | called_off)
    kept = {name: it.xact_seqno for name, it in copied.items() if name not in again}
    if kept:
        say(f"{named(sorted(kept), 'article')}: copied by an interrupted snapshot, and not copied again")
    reasons = {
        "the definition has changed": altered,
        "the snapshot was called off": called_off,
        "a foreign key refers to or from a table that is copied now": copied.keys()
        - kept.keys()
        - altered
        - called_off,
    }
    for reason, names in reasons.items():
        if names:
            say(f"{named(sorted(names), 'article')}: copied by an interrupted snapshot, and copied again: {reason}")
    return kept
