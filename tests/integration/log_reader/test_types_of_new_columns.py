"""Columns that are added with a type that the PostgreSQL Subscriber does not have."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import pytest

from conftest import DatabasesFactory
from support.equality import differing_rows
from support.site import Site
from support.spark_here import SparkHere
from support.whole_run import good_run, whole_run
from tranrepl.errors import ConfigurationError


@pytest.mark.parametrize(
    ("types", "name", "value", "printed"),
    [
        (["CREATE SCHEMA s", "CREATE TYPE s.\"a mood\" AS ENUM ('q', 'it''s')"], 's."a mood"', "q", True),
        (["CREATE TYPE mood AS ENUM ('q')"], "mood[]", "{q}", True),
        (["CREATE TYPE pair AS (n int, v text)"], "pair", "(1,x)", False),
        (["CREATE DOMAIN positive AS int CHECK (VALUE > 0)"], "positive", "3", False),
    ],
    ids=["enum", "array", "composite", "domain"],
)
def test_a_missing_type_is_named_with_what_to_run(
    databases: DatabasesFactory, tmp_path: Path, types: Sequence[str], name: str, value: str, *, printed: bool
) -> None:
    article = {"source": "public.item", "pre_creation_cmd": "delete"}
    subscription = {"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}
    site = Site(databases(), tmp_path / "store", [article], SparkHere(), [subscription], replicate_ddl=True)
    site.at_publisher("CREATE TABLE item (id int PRIMARY KEY)", "INSERT INTO item VALUES (1)")
    site.set_up()
    good_run(site)
    site.at_publisher(*types, f"ALTER TABLE item ADD COLUMN c {name} DEFAULT '{value}'", "INSERT INTO item VALUES (2)")
    results = whole_run(site)
    error = next(it.error for it in results.values() if it.error is not None)
    remedy = error.remedy or ""
    assert "there is no type" in error.message
    assert "`tranrepl run FILE`" in remedy
    if printed:
        statements = remedy.removeprefix("run at the Subscriber: ").split("; then `tranrepl run FILE`")[0]
        site.at_subscriber(*statements.split("; "))
    else:
        assert "at the Subscriber as it is at the Publisher" in remedy
        site.at_subscriber(*types)
    good_run(site)
    assert differing_rows(site) == {}


@pytest.mark.parametrize(
    ("types", "name", "what"),
    [
        ("CREATE TYPE mood AS ENUM ('q')", "mood", "type public.mood"),
        ("CREATE TYPE mood AS ENUM ('q'); CREATE DOMAIN moods AS mood[]", "moods", "type public.mood"),
        ("CREATE TYPE mood AS ENUM ('q')", "mood", "the function of the cast of text to public.mood[]"),
    ],
    ids=["enum", "domain of an array", "cast"],
)
def test_a_type_whose_owner_could_run_code_is_refused(
    databases: DatabasesFactory, tmp_path: Path, types: str, name: str, what: str
) -> None:
    login = f"other_{uuid4().hex[:8]}"
    site = Site(databases(), tmp_path / "store", ["public.item", "public.made"], SparkHere(), replicate_ddl=True)
    site.at_publisher(
        "CREATE TABLE item (id int PRIMARY KEY)", types, f"CREATE TABLE made (id int PRIMARY KEY, c {name})"
    )
    site.at_subscriber(types, f"CREATE ROLE {login}", f"GRANT CREATE ON SCHEMA public TO {login}", _CAST)
    owned = "TYPE mood" if what.startswith("type") else "FUNCTION run(text)"
    statement = f"ALTER {owned} OWNER TO {login}"
    try:
        site.at_subscriber(statement)
        with pytest.raises(ConfigurationError) as refused:
            site.set_up()
        assert f"column 'c': {what} belongs to role {login}" in refused.value.message
        site.at_subscriber(statement.replace(login, "CURRENT_USER"))
        site.set_up()
        good_run(site)

        site.at_subscriber(statement)
        site.at_publisher(f"ALTER TABLE item ADD COLUMN c {name}", "INSERT INTO item VALUES (1)")
        error = next(it.error for it in whole_run(site).values() if it.error is not None)
        assert f"column 'c': {what} belongs to role {login}" in error.message
        assert error.remedy is not None
        site.at_subscriber(
            error.remedy.removeprefix("where you trust what it does: let a superuser run ").split(";")[0]
        )
        good_run(site)
        assert differing_rows(site) == {}
    finally:
        site.at_subscriber(f"REASSIGN OWNED BY {login} TO CURRENT_USER", f"DROP OWNED BY {login}", f"DROP ROLE {login}")


_CAST = """
CREATE FUNCTION run(v text) RETURNS mood[] LANGUAGE sql AS $$ SELECT ARRAY['q'::mood] $$;
CREATE CAST (text AS mood[]) WITH FUNCTION run(text)
"""
