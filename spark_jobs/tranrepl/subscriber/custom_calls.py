"""What a schema change gives custom procedures under the parameters that they have: nobody can tell by the signature
whether one knows of it."""

from __future__ import annotations

from collections.abc import Iterator

from tranrepl.model.article import RegisteredArticle
from tranrepl.model.call_syntax import arguments
from tranrepl.model.commands import Operation
from tranrepl.subscriber.procedure_names import PREFIXES


def other_columns(old: RegisteredArticle, new: RegisteredArticle) -> Iterator[str]:
    """Yield, in words, each custom procedure whose parameters carry columns of other names than before."""
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
