"""A schema change that cannot be followed."""

from __future__ import annotations

from tranrepl.errors import ConfigurationError
from tranrepl.model.article import RegisteredArticle


class SchemaStop(Exception):  # noqa: N818 — it is no error of its own, it carries one
    """A schema change that cannot be followed: reading ends before its transaction."""

    def __init__(self, error: ConfigurationError) -> None:
        super().__init__(error.message)
        self.error = error


def schema_stop(article: RegisteredArticle, tag: str, problem: str, way_on: str) -> SchemaStop:
    """Return the stop of an article, which says what is in the way, and the way on."""
    return SchemaStop(
        ConfigurationError(
            f"table {article.source} was altered ({tag}): {problem}. Everything committed before that is stored; "
            "nothing after it is read",
            remedy=f"{way_on}; then run `tranrepl setup FILE`",
            article=str(article.source),
        )
    )
