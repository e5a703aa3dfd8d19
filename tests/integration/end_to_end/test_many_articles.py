"""A publication of many tables of different shapes, whose changes interleave."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.in_process import replicate_stored
from support.site import Site
from tranrepl.subscriber.postgres import statement_pipeline

_TABLES = 20
_ROUNDS = 3
_TRANSACTIONS = 40
_KEYS = 12
_SHAPES = (
    "id int PRIMARY KEY, n int, word text",
    "word text, id int, n int, PRIMARY KEY (id, word)",
    "n int, id bigint PRIMARY KEY, word text, more text DEFAULT 'm'",
    "id int PRIMARY KEY, n int, word text UNIQUE",
)


@pytest.mark.parametrize("apply", ["auto", "serial"])
@pytest.mark.parametrize("statements", [7, 1000])
def test_each_article_keeps_to_itself(
    databases: DatabasesFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, apply: str, statements: int
) -> None:
    monkeypatch.setattr(statement_pipeline, "_MOST_STATEMENTS", statements)
    names = [f"t{number}" for number in range(_TABLES)]
    subscription = {"name": "reporting", "connection": "subscriber", "apply": apply}
    site = Site(databases(), tmp_path, [f"public.{name}" for name in names], subscriptions=[subscription])
    for number, name in enumerate(names):
        site.at_publisher(f"CREATE TABLE {name} ({_SHAPES[number % len(_SHAPES)]})")
    site.set_up()
    for number in range(_ROUNDS):
        site.at_publisher(*_changes(random.Random(number), names))
        delivered = replicate_stored(site)
        assert delivered.commands > _TRANSACTIONS
        assert bool(delivered.in_bulk) is (apply == "auto")
        assert site.differences() == []


def _changes(chance: random.Random, names: list[str]) -> Iterator[str]:
    """Yield transactions, each over several tables."""
    for number in range(_TRANSACTIONS):
        statements = [_change(chance, chance.choice(names), number) for _ in range(10)]
        yield "; ".join(["BEGIN", *statements, "COMMIT"])


def _change(chance: random.Random, name: str, number: int) -> str:
    key = chance.randrange(_KEYS)
    match chance.choice(["insert", "insert", "update", "update", "delete"]):
        case "insert":
            return f"INSERT INTO {name} (id, n, word) VALUES ({key}, {number}, '{key}') ON CONFLICT DO NOTHING"
        case "update":
            return f"UPDATE {name} SET n = {number} WHERE id = {key}"
        case _:
            return f"DELETE FROM {name} WHERE id = {key}"
