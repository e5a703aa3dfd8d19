"""Changes become commands: one pass of Spark SQL expressions, generated per article and chosen by `article_id`."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from tranrepl.article import RegisteredArticle
from tranrepl.commands import Operation


def commands_of_changes(changes: DataFrame, articles: Sequence[RegisteredArticle]) -> DataFrame:
    """Leave in each image what its call syntax sends, and no more. Row layout in, row layout out.

    CALL of an INSERT: the new values. SCALL and SQL of an UPDATE: the values that changed, and the old key. CALL and
    SQL of a DELETE: the old key. ("Transactional Articles - Specify How Changes Are Propagated".)
    """
    changed = changes["operation"].isin(int(Operation.UPDATE), int(Operation.DELETE))
    before = F.when(~changed, changes["before"])
    for article in articles:
        before = before.when(changes["article_id"] == article.article_id, _old_key(article, changes["before"]))
    after = F.when(~changed, changes["after"]).otherwise(_changed_values(changes["before"], changes["after"]))
    return changes.withColumns({"before": before, "after": after})


def _old_key(article: RegisteredArticle, before: Column) -> Column:
    """The old key. What follows its last column is left off: an element that is not there does not travel."""
    key = set(article.key_positions)
    absent = F.lit(None).cast("string")
    return F.array(*(F.get(before, F.lit(at)) if at in key else absent for at in range(max(key) + 1)))


def _changed_values(before: Column, after: Column) -> Column:
    """A value equal to the old one did not change. Where the log has no old value, NULL differs from all that is not
    NULL, and a NULL is sent as NULL either way: the mask tells.

    One expression for all articles: an expression for every column of every article grows beyond what Spark compiles.
    """
    return F.zip_with(after, before, F.nullif)
