"""What an article needs of a row before its change, and whether the log has it: the table's replica identity."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tranrepl.model.article import RegisteredArticle
from tranrepl.model.commands import CallSyntax, Method
from tranrepl.model.propagation import UpdatePolicy
from tranrepl.publisher.postgres.row_filters import filter_columns
from tranrepl.settings.publication import Article

FULL = "f"
NOTHING = "n"
LACKS_OLD_ROWS_REMEDY = (
    "ALTER TABLE {} REPLICA IDENTITY FULL, which `tranrepl setup FILE` does where the article's replica_identity is "
    "full; then `tranrepl run FILE` skips the changes that lack old rows, and the article is reinitialized"
)
_IDENTITIES = {"d": "DEFAULT", "i": "USING INDEX", NOTHING: "NOTHING", FULL: "FULL"}


def old_rows_problem(article: RegisteredArticle, replica_identity: str, identified: Sequence[bool]) -> str | None:
    """Say why changes made under this replica identity lack what the article needs; None where they do not.
    `identified` says of each column of the article's key whether old rows have it."""
    if replica_identity == FULL or _is_of_inserts(article, replica_identity):
        return None
    if not all(identified):
        what = "the primary key"
    elif wanting := needs_whole_rows(article, _key(article)):
        what = f"what {', '.join(wanting)} needs"
    else:
        return None
    identity = _IDENTITIES.get(replica_identity, replica_identity)
    return f"with REPLICA IDENTITY {identity}, old rows in the log lack {what}"


def _is_of_inserts(article: RegisteredArticle, replica_identity: str) -> bool:
    """Return whether an article takes inserts only, of a table of which the log has no other changes of rows: without a
    replica identity, PostgreSQL refuses UPDATE and DELETE of a published table."""
    propagated = (article.upd_cmd.method, article.del_cmd.method)
    return replica_identity == NOTHING and all(it is Method.NONE for it in propagated)


def may_lack_values(article: RegisteredArticle, replica_identity: str) -> bool:
    """Return whether an UPDATE may come without a value that did not change, and that its command sends."""
    if replica_identity == FULL or _is_of_inserts(article, replica_identity):
        return False
    sends_all = article.upd_cmd.syntax in (CallSyntax.CALL, CallSyntax.MCALL)
    return sends_all or article.update_policy is UpdatePolicy.ALWAYS_PAIRS


def needs_whole_rows(article: Article | RegisteredArticle, key: Collection[str]) -> list[str]:
    """Return settings of an article, in words, that need more of an old row than its key."""
    wanting = []
    if article.filter is not None and not set(key).issuperset(filter_columns(article.filter, article.source.table)):
        wanting.append("filter")
    if CallSyntax.XCALL in (article.upd_cmd.syntax, article.del_cmd.syntax):
        wanting.append("XCALL")
    return wanting


def _key(article: RegisteredArticle) -> list[str]:
    return [article.columns[at].name for at in article.key_positions]
