"""Names in statements that are text."""

from __future__ import annotations

import pytest

from tranrepl.subscriber.base.identifiers import Identifiers

_HOSTILE = "a\"b`c]d;'\\ -- %s %(x)s :y {} $$"


@pytest.mark.parametrize(
    ("kind", "quoted"),
    [
        ("mariadb", "`" + _HOSTILE.replace("`", "``") + "`"),
        ("mssql", "[" + _HOSTILE.replace("]", "]]") + "]"),
        ("sqlite", '"' + _HOSTILE.replace('"', '""') + '"'),
    ],
)
def test_each_dialect_quotes_a_name_in_its_own_way(kind: str, quoted: str) -> None:
    assert Identifiers(kind).quoted(_HOSTILE) == quoted


def test_a_qualified_name_leaves_out_a_schema_that_is_not_there() -> None:
    identifiers = Identifiers("mariadb")
    assert identifiers.qualified("s.t", "a") == "`s.t`.`a`"
    assert identifiers.qualified(None, "a") == "`a`"
