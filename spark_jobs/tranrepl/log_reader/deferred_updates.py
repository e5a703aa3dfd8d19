"""Deferred updates: an UPDATE of a unique column goes out as DELETE and INSERT.

Source: KB 238254; trace flags 8207 (singleton updates) and 8202 (always pairs) are `UpdatePolicy`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tranrepl.log_reader.row_filter import deletes_of, inserts_of
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.call_syntax import Values, sent
from tranrepl.model.commands import Operation
from tranrepl.model.propagation import UpdatePolicy
from tranrepl.publisher.changes import LEFT_OUT, Bools, Changes, ChangeSet, Transactions


def singletons(changes: Changes) -> Bools:
    """Return by transaction whether it holds one change only."""
    transactions = changes.transactions
    counts = np.zeros(len(transactions.seqno), dtype=np.int64)
    for it in changes.sets:
        counts += np.bincount(transactions.of(it.places), minlength=len(counts))
    single: Bools = (counts == 1) & transactions.whole
    return single


def pairs(changes: ChangeSet, transactions: Transactions, single: Bools) -> Iterator[ChangeSet]:
    """Yield the UPDATEs, and those among them that go out as a DELETE and an INSERT. The INSERT comes right after its
    DELETE."""
    if changes.operation is not Operation.UPDATE or changes.changed is None:
        yield changes
        return
    match changes.article.update_policy:
        case UpdatePolicy.ALWAYS_PAIRS:
            deferred = np.ones(len(changes.places), dtype=np.bool_)
        case UpdatePolicy.PAIRS:
            deferred = _changes_a_unique_column(changes.changed, changes.article)
        case UpdatePolicy.SINGLETON_UPDATE:
            alone = single[transactions.of(changes.places)]
            deferred = _changes_a_unique_column(changes.changed, changes.article) & ~alone
    deferred &= ~_must_stay_updates(changes)
    if not deferred.any():
        yield changes
        return
    yield changes.rows(np.flatnonzero(~deferred))
    paired = changes.rows(np.flatnonzero(deferred))
    yield deletes_of(paired)
    yield replace(inserts_of(paired), turn=np.ones(len(paired.places), dtype=np.int64))


def _changes_a_unique_column(changed: Bools, article: RegisteredArticle) -> Bools:
    return np.asarray(changed[:, list(article.unique_positions)].any(axis=1))


def _must_stay_updates(changes: ChangeSet) -> Bools:
    """Return which rows lack a new value in the log: an INSERT cannot be made of them, an UPDATE of what changed
    can."""
    only_changed = sent(changes.article.upd_cmd, Operation.UPDATE).after is Values.CHANGED
    if not only_changed or changes.after is None:
        return np.zeros(len(changes.places), dtype=np.bool_)
    return np.asarray((changes.after.lengths == LEFT_OUT).any(axis=1))
