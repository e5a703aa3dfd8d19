"""In which schema of the distribution database our tables are, and whose tables are not taken for ours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import uuid4

import pytest

from conftest import DatabaseFactory
from support.least_rights import with_login
from support.site import execute
from tranrepl.connections import Connection
from tranrepl.distributor.database import DistributionDatabase
from tranrepl.errors import ConfigurationError

pytestmark = pytest.mark.new_sessions


@dataclass(frozen=True)
class _Place:
    owner: Connection
    """A superuser, who made the database."""
    ours: Connection
    other: Connection
    """Somebody who may create schemas in it, and tables in `public`."""

    def execute(self, *statements: str, by: Connection | None = None) -> None:
        """Execute by the superuser, or by another. A statement may name the roles as {ours} and {other}."""
        names = {"ours": f'"{self.ours.login}"', "other": f'"{self.other.login}"'}
        execute(by or self.owner, *(it.format(**names) for it in statements))

    def schema(self) -> str:
        with DistributionDatabase(self.ours) as database:
            return database.schema()

    def migrate(self) -> str:
        """Make the tables; return the schema that has all of them."""
        with DistributionDatabase(self.ours) as database:
            database.migrate()
            assert database.is_current()
        found = execute(self.owner, "SELECT schemaname FROM pg_tables WHERE tablename LIKE 'ms%' GROUP BY 1")
        assert len(found) == 1
        return str(found[0][0])


@pytest.fixture
def place(database: DatabaseFactory) -> Iterator[_Place]:
    owner = database("distribution")
    names = [f"{it}_{uuid4().hex[:8]}" for it in ("ours", "other")]
    for name in names:
        execute(owner, f"CREATE ROLE {name} LOGIN PASSWORD 'x'", f"GRANT CREATE ON SCHEMA public TO {name}")
    execute(owner, f'GRANT CREATE ON DATABASE "{owner.database}" TO {names[1]}')
    yield _Place(owner, *(with_login(owner, name, "x") for name in names))
    for name in names:
        execute(owner, f"DROP OWNED BY {name} CASCADE", f"DROP ROLE {name}")


_OWN = 'CREATE SCHEMA "ours" AUTHORIZATION {ours}'


@pytest.mark.parametrize(
    ("statements", "schema"),
    [
        ((), "public"),
        ((_OWN, 'ALTER ROLE {ours} SET search_path = "ours"'), "ours"),
        (("CREATE SCHEMA {ours} AUTHORIZATION {ours}",), "{ours}"),
        (("ALTER ROLE {ours} SET search_path = ''",), "public"),
        ((_OWN, 'ALTER ROLE {ours} SET search_path = gone, "ours", public'), "ours"),
        (("ALTER ROLE {ours} SET search_path = pg_catalog",), "public"),
    ],
)
def test_tables_are_made_in_the_first_schema_of_the_path(
    place: _Place, statements: tuple[str, ...], schema: str
) -> None:
    place.execute(*statements)
    expected = schema.format(ours=place.ours.login)
    assert place.schema() == expected
    assert place.migrate() == expected
    place.execute("ALTER ROLE {ours} SET search_path = ''")
    assert place.migrate() == expected


def test_a_schema_that_somebody_makes_later_shadows_nothing(place: _Place) -> None:
    assert place.migrate() == "public"
    place.execute("CREATE SCHEMA {ours}", "CREATE TABLE {ours}.tranrepl_version (version_num text)", by=place.other)
    place.execute("GRANT USAGE ON SCHEMA {ours} TO PUBLIC", "GRANT ALL ON {ours}.tranrepl_version TO PUBLIC")
    assert place.schema() == "public"
    place.execute("ALTER ROLE {ours} SET search_path = ''")
    assert place.schema() == "public"
    place.execute("CREATE SCHEMA app", by=place.other)
    place.execute("CREATE TABLE app.tranrepl_version (version_num text)", by=place.other)
    place.execute("GRANT USAGE ON SCHEMA app TO PUBLIC", "ALTER ROLE {ours} SET search_path = app, public")
    assert place.schema() == "public"


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        (("CREATE SCHEMA {ours}", "GRANT USAGE ON SCHEMA {ours} TO PUBLIC"), "schema ours_.*, belongs to role other_"),
        (("CREATE TABLE public.tranrepl_version (version_num text)",), "table .* belongs to role other_"),
    ],
)
@pytest.mark.parametrize("superuser", [False, True], ids=["plain", "superuser"])
def test_what_somebody_made_before_setup_is_not_used(
    place: _Place, statements: tuple[str, ...], message: str, superuser: bool
) -> None:
    place.execute(*statements, by=place.other)
    if superuser:
        place.execute("ALTER ROLE {ours} SUPERUSER")
    with pytest.raises(ConfigurationError, match=message) as refused, DistributionDatabase(place.ours) as database:
        database.ping()
    remedy = refused.value.report.remedy or ""
    place.execute(re.split("; ", remedy)[0])
    assert place.migrate() in ("public", place.ours.login)


def test_tables_in_two_schemas_off_the_path_are_named(place: _Place) -> None:
    place.execute(_OWN)
    for path in ("public", '"ours"'):
        place.execute(f"ALTER ROLE {{ours}} SET search_path = {path}")
        with DistributionDatabase(place.ours) as database:
            database.migrate()
    place.execute("ALTER ROLE {ours} SET search_path = ''")
    with pytest.raises(ConfigurationError, match="its tables are in schemas ours, public"):
        place.schema()


def test_a_database_without_a_place_for_tables_is_named(place: _Place) -> None:
    place.execute("ALTER ROLE {ours} SET search_path = ''", "DROP SCHEMA public")
    with pytest.raises(ConfigurationError, match="search_path names no schema") as refused:
        place.schema()
    assert f'ALTER ROLE "{place.ours.login}" SET search_path' in (refused.value.report.remedy or "")
