"""Which expressions are one constant: only its value is taken over."""

from __future__ import annotations

import pytest

from tranrepl.model.source_sql import constant_text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", "5"),
        ("-5", "-5"),
        ("(-1.5)::numeric(4,1)", "-1.5"),
        ("'-5'::integer", "-5"),
        ("'O''Neil'::character varying", "O'Neil"),
        ("'{1,2}'::integer[]", "{1,2}"),
        ("'glad'::public.mood", "glad"),
        ("'2024-02-29 12:00:00+00'::timestamp with time zone", "2024-02-29 12:00:00+00"),
        ("true", "t"),
        ("false", "f"),
        ("now()", None),
        ("('now'::text)::timestamp without time zone", None),
        ("nextval('s'::regclass)", None),
        ("5 + 1", None),
        ("ARRAY[1]", None),
        ("NULL::text", None),
        ("E'a'", None),
        ("'x'::text; DROP TABLE t", None),
        ("5); DROP TABLE t; --", None),
        ("'x", None),
        ("", None),
    ],
)
def test_a_constant_is_taken_apart_and_nothing_else(text: str, value: str | None) -> None:
    assert constant_text(text) == value
