"""Changes become commands: one pass of Spark SQL expressions, generated per article and chosen by `article_id`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from tranrepl.article import RegisteredArticle
from tranrepl.commands import Operation


def commands_of_changes(changes: DataFrame, articles: Sequence[RegisteredArticle]) -> DataFrame:
    """Leave in each image what its call syntax sends, and no more. Row layout in, row layout out.

    CALL of an INSERT: the new values. SCALL and SQL of an UPDATE: the values that changed, and the old key. CALL and
    SQL of a DELETE: the old key. ("Transactional Articles - Specify How Changes Are Propagated".)
    """
    return changes.withColumns(
        {
            "before": _by_article(changes, articles, "before", _before_image),
            "after": _by_article(changes, articles, "after", _after_image),
        }
    )


def _by_article(
    changes: DataFrame,
    articles: Iterable[RegisteredArticle],
    image: str,
    sent: Callable[[RegisteredArticle, Column, Column], Column],
) -> Column:
    """The image as `sent` leaves it for UPDATE and DELETE; other operations keep theirs."""
    before, after = changes["before"], changes["after"]
    chosen = F.when(~changes["operation"].isin(int(Operation.UPDATE), int(Operation.DELETE)), changes[image])
    for article in articles:
        chosen = chosen.when(changes["article_id"] == article.article_id, sent(article, before, after))
    return chosen


def _before_image(article: RegisteredArticle, before: Column, after: Column) -> Column:  # noqa: ARG001
    """The old key. What follows its last column is left off: an element that is not there does not travel."""
    key = set(article.key_positions)
    absent = F.lit(None).cast("string")
    return F.array(*(F.get(before, F.lit(at)) if at in key else absent for at in range(max(key) + 1)))


def _after_image(article: RegisteredArticle, before: Column, after: Column) -> Column:
    """A value equal to the old one did not change. Where the log has no old value, NULL differs from all that is not
    NULL, and a NULL is sent as NULL either way: the mask tells."""
    values = (F.nullif(F.get(after, F.lit(at)), F.get(before, F.lit(at))) for at in range(len(article.columns)))
    return F.when(after.isNotNull(), F.array(*values))
