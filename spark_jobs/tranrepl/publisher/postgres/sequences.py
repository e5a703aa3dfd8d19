"""How far the sequences of published columns are at a PostgreSQL Publisher. Nothing of it is in the log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from tranrepl.model.article import RegisteredArticle
from tranrepl.model.sequences import ArticleColumn, ColumnSequence, FoundSequences, SequenceDefinition
from tranrepl.postgres.sequences import bounded, grants_on_sequences, sequence_states, table_sequences
from tranrepl.postgres.session import Session


def published_sequences(session: Session, articles: Sequence[RegisteredArticle]) -> FoundSequences:
    """Return the sequences of the articles' columns as they are now, which is after every change that was read."""
    by_table = {it.source_object_id: it for it in articles}
    with bounded(session):
        published = [
            it
            for it in table_sequences(session, by_table)
            if it.column in {column.name for column in by_table[it.object_id].columns}
        ]
        states = sequence_states(session, published)
    return FoundSequences(
        {
            ArticleColumn(by_table[it.object_id].source, it.column): ColumnSequence(
                it.name, it.definition, states.get(it.name)
            )
            for it in published
        },
        grants_on_sequences(session, "SELECT", {it.name for it in published if not it.may_know}),
    )


def own_sequences(session: Session, object_ids: Collection[int]) -> Mapping[int, Mapping[str, SequenceDefinition]]:
    """Return by table and column the sequences that belong to one column, which are those of identity and serial
    columns."""
    found: defaultdict[int, dict[str, SequenceDefinition]] = defaultdict(dict)
    for it in table_sequences(session, object_ids):
        if it.is_own:
            found[it.object_id][it.column] = it.definition
    return found
