"""Types of PostgreSQL's extensions, as columns, keys and in row filters, on their whole way."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from conftest import DatabasesFactory
from support.snapshot_site import automatic_site
from support.spark_here import SparkHere


class Kind(NamedTuple):
    """A type of an extension: four values of it, and a filter that the first two pass."""

    extension: str
    type: str
    values: tuple[str, str, str, str]
    filter: str


_OF_15 = {
    "citext": Kind("citext", "s.citext", ("Aé", "aÉ ", "b", "C"), "v OPERATOR(s.<) 'B'::s.citext"),
    "hstore": Kind("hstore", "s.hstore", ('a=>1, "b c"=>NULL', 'a=>"x\\"y"', "", "b=>2"), "v OPERATOR(s.?) 'a'::text"),
    "ltree": Kind("ltree", "s.ltree", ("top", "top.a_1", "low", "low.b"), "v OPERATOR(s.<@) 'top'::s.ltree"),
    "intarray": Kind("intarray", "int[]", ("{1,2}", "{1}", "{}", "{-3,2}"), "v OPERATOR(s.@>) '{1}'::int[]"),
    "isn": Kind(
        "isn",
        "s.isbn",
        ("0-11-000533-3", "0-14-014739-X", "0-7356-1967-0", "0-201-63361-2"),
        "v OPERATOR(s.<) '0-201-63361-2'::s.isbn",
    ),
    "cube": Kind("cube", "s.cube", ("(1,2)", "(1),(3)", "(9,9)", "(8)"), "v OPERATOR(s.<) '(5)'::s.cube"),
}
_OF_18 = {
    "vector": Kind(
        "vector", "s.vector(3)", ("[1,2,3.5]", "[1e-20,0,-1]", "[9,9,9]", "[8,-0.1,3e10]"), "v OPERATOR(s.<) '[5,0,0]'"
    ),
    "halfvec": Kind("vector", "s.halfvec(2)", ("[1,2]", "[0.1,6e-8]", "[9,65504]", "[8,0]"), "v OPERATOR(s.<) '[5,0]'"),
    "sparsevec": Kind(
        "vector", "s.sparsevec(9)", ("{1:1}/9", "{}/9", "{1:9,9:0.1}/9", "{1:8}/9"), "v OPERATOR(s.<) '{1:5}/9'"
    ),
}


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("kind", ["ltree", "vector", *sorted({*_OF_15, *_OF_18} - {"ltree", "vector"})])
def test_types_of_extensions_come_as_they_are(
    kind: str, databases: DatabasesFactory, request: pytest.FixtureRequest, tmp_path: Path, here: SparkHere
) -> None:
    server = request.getfixturevalue("debian_postgres") if kind in _OF_15 else None
    case = (_OF_15 | _OF_18)[kind]
    first, second, third, fourth = case.values
    array, several = f"{case.type}[]", f"ARRAY['{second}'::{case.type}, NULL, '{third}']"
    if case.type == "int[]":
        array, several = case.type, f"'{second}'"
    made = databases(publisher=server, subscriber=server)
    articles = [
        {"source": "public.columns"},
        {"source": "public.keys"},
        {"source": "public.statements", "ins_cmd": "SQL", "upd_cmd": "SQL", "del_cmd": "SQL"},
        {"source": "public.filtered", "filter": case.filter},
    ]
    site = automatic_site(made, tmp_path, articles)
    site.spark = here
    for end in (site.at_publisher, site.at_subscriber):
        end("CREATE SCHEMA s", f"CREATE EXTENSION {case.extension} SCHEMA s")
    site.at_publisher(
        f"CREATE TABLE columns (id int PRIMARY KEY, v {case.type}, more {array})",
        f"CREATE TABLE keys (v {case.type} PRIMARY KEY, n int)",
        f"CREATE TABLE statements (id int PRIMARY KEY, v {case.type})",
        f"CREATE TABLE filtered (id int PRIMARY KEY, v {case.type} NOT NULL)",
        f"INSERT INTO columns VALUES (1, '{first}', {several}), (2, NULL, NULL)",
        f"INSERT INTO filtered VALUES (1, '{first}'), (2, '{third}')",
    )
    site.set_up()
    site.take_snapshot().raise_error()
    assert site.at_subscriber("SELECT id FROM filtered") == [(1,)]
    site.at_publisher(
        f"INSERT INTO columns SELECT n, '{second}' FROM generate_series(10, 40) n",
        f"UPDATE columns SET v = '{third}', more = (SELECT more FROM columns WHERE id = 1) WHERE id < 20",
        f"INSERT INTO keys VALUES ('{first}', 1), ('{second}', 2), ('{third}', 3)",
        "UPDATE keys SET n = n + 10",
        f"UPDATE keys SET v = '{fourth}' WHERE n = 13",
        "DELETE FROM keys WHERE n = 12",
        f"INSERT INTO statements VALUES (1, '{first}'), (2, '{third}')",
        f"UPDATE statements SET v = '{fourth}' WHERE id = 1",
        f"UPDATE filtered SET v = '{fourth}' WHERE id = 1",
        f"UPDATE filtered SET v = '{second}' WHERE id = 2",
    )
    site.run()
    assert site.at_subscriber("SELECT id FROM filtered") == [(2,)]
    site.at_publisher("DELETE FROM filtered WHERE id = 1")
    assert site.differences() == []
    site.validate().raise_error()
