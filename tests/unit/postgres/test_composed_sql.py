"""SQL that is composed from definitions: what a Publisher's catalogue writes is taken over, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from psycopg import sql

import tranrepl
from tranrepl.errors import ConfigurationError
from tranrepl.postgres.composed_sql import (
    bound_sql,
    condition_sql,
    division_sql,
    expression_sql,
    name_sql,
    type_sql,
)

_TAKEN_OVER: dict[Callable[[str], sql.Composable], tuple[tuple[str, str | None], ...]] = {
    type_sql: (
        ("integer", None),
        ("numeric(10,-2)", None),
        ("character varying(20)[]", None),
        ("timestamp(3) with time zone", None),
        ("interval day to second(3)", None),
        ("double precision", None),
        ('"char"', None),
        ("mood", '"mood"'),
        ('public."My Type"[]', '"public"."My Type"[]'),
        ("public.geometry(PointZ,4326)", '"public"."geometry"("pointz",4326)'),
    ),
    name_sql: (('pg_catalog."C"', '"pg_catalog"."C"'), ('"de-x-icu"', None)),
    expression_sql: (
        ("((quantity)::numeric * price)", None),
        ("(('it''s'::text || E'a\\'b') COLLATE \"C\")", None),
        ("CASE WHEN (a IS NULL) THEN '-1'::integer ELSE upper(b) END", None),
        ("('a'::public.mood)", None),
        ("(data ->> 'key'::text)", None),
    ),
    condition_sql: (("public.f(x) AND y % 2 = -1", None), ("x = $$a'b$$", None)),
    bound_sql: (
        ("DEFAULT", None),
        ("FOR VALUES IN ('a', 'it''s', NULL, true)", None),
        ("FOR VALUES FROM (1, MINVALUE) TO ('-5', MAXVALUE)", None),
        ("FOR VALUES WITH (modulus 4, remainder 0)", None),
    ),
    division_sql: (("RANGE (a, b)", None), ("LIST (lower(name))", None), ('HASH (a COLLATE "C" text_ops)', None)),
}
_REFUSED: dict[Callable[[str], sql.Composable], tuple[str, ...]] = {
    type_sql: (
        "int; create table pwned(); --",
        "int, ADD COLUMN b int",
        "int DEFAULT f()",
        "int/**/",
        "public.f('x')::int",
        "x.y.z",
        "",
        "int\0",
        "int\u00a0",
    ),
    name_sql: ("a; b", "a b", "f(x)"),
    expression_sql: (
        "1) STORED; create table pwned(); --",
        "a) STORED, ADD COLUMN b int DEFAULT (1",
        "a -- b",
        "public.f(a)",
        "(a OPERATOR(public.+) b)",
        "(SELECT f())",
        "a, b",
        "'a",
        "'a' 'b'",
        "U&'x'",
        "$1",
    ),
    condition_sql: ("true); DROP TABLE t; --", "a /* b */", "(a", "a]", "name'\\' = a); DROP TABLE x; -- '"),
    bound_sql: ("FOR VALUES IN (f())", "FOR VALUES IN (1); DROP TABLE t", "DEFAULT PARTITION BY LIST (a)", "IN (1)"),
    division_sql: ("RANGE (a) TABLESPACE x", "RANGE (a), (b)", "RANGE (public.f(a))", "a", "RANGE"),
}


@pytest.mark.parametrize(
    ("compose", "text", "written"), [(of, text, to or text) for of, texts in _TAKEN_OVER.items() for text, to in texts]
)
def test_what_a_catalogue_writes_is_taken_over(
    compose: Callable[[str], sql.Composable], text: str, written: str
) -> None:
    assert compose(text).as_string(None).replace(" E'", "E'").replace("||E'", "|| E'") == written


@pytest.mark.parametrize(("compose", "text"), [(of, text) for of, texts in _REFUSED.items() for text in texts])
def test_all_else_is_refused(compose: Callable[[str], sql.Composable], text: str) -> None:
    with pytest.raises(ConfigurationError, match="taken over"):
        compose(text)


def test_no_text_of_a_definition_is_marked_as_sql() -> None:
    """What a definition says goes through `composed_sql` alone."""
    texts = r"type_name|bound|key|collation|default|expression|filter|condition|generation_expression|name"
    marked = re.compile(rf"(?:\bSQL|\btrusted)\((?:[\w.]+\.)?(?:{texts})\b")
    root = Path(tranrepl.__file__).parent
    found = [
        f"{path.relative_to(root)}: {line.strip()}"
        for path in sorted(root.rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if marked.search(line)
    ]
    assert found == []
