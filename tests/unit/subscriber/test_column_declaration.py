"""A column's declaration, found in CREATE TABLE as a catalogue keeps it, and rewritten."""

from __future__ import annotations

import pytest
from sqlglot.dialects.mysql import MySQL
from sqlglot.dialects.sqlite import SQLite

from tranrepl.subscriber.base.column_declaration import ColumnDeclaration, find_declaration, with_primary_key

_MARIADB = """CREATE TABLE `t` (
  `b``c` varchar(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT 'x, NOT NULL' COMMENT 'a
NOT NULL' CHECK (`b``c` is not null),
  `d` enum('a','b') NOT NULL,
  `n` decimal(10,2) unsigned DEFAULT NULL,
  PRIMARY KEY (`d`)
) ENGINE=InnoDB COMMENT='`e` int NOT NULL'"""
_SQLITE = (
    'CREATE TABLE "t" (id INTEGER NOT NULL, b NOT NULL ON CONFLICT ABORT, c, '
    '"d e" VARCHAR(10) COLLATE NOCASE constraint n not null, primary key (id)) without rowid'
)


def _mariadb(name: str) -> ColumnDeclaration:
    found = find_declaration(_MARIADB, name, MySQL.Tokenizer)
    assert found is not None
    return found


def _sqlite(name: str) -> ColumnDeclaration:
    found = find_declaration(_SQLITE, name, SQLite.Tokenizer, ("COLLATE",))
    assert found is not None
    return found


def test_not_null_goes_and_all_else_stays() -> None:
    assert _mariadb("b`c").written(nullable=True) == (
        "`b``c` varchar(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL DEFAULT 'x, NOT NULL' COMMENT 'a\n"
        "NOT NULL' CHECK (`b``c` is not null)"
    )
    assert _mariadb("D").written(nullable=True) == "`d` enum('a','b') NULL"
    assert _sqlite("b").written(nullable=True) == "b NULL ON CONFLICT ABORT"
    assert _sqlite("d e").written(nullable=True) == '"d e" VARCHAR(10) COLLATE NOCASE constraint n NULL'


def test_another_type_takes_the_place_of_the_whole_type() -> None:
    assert _mariadb("n").written("decimal(12,2)") == "`n` decimal(12,2) DEFAULT NULL"
    assert _mariadb("d").written("longtext", nullable=True) == "`d` longtext NULL"
    assert _sqlite("b").written("TEXT") == "b TEXT NOT NULL ON CONFLICT ABORT"
    assert _sqlite("c").written("TEXT") == "c TEXT"
    found = find_declaration("CREATE TABLE t (a INTEGER PRIMARY KEY DESC)", "a", SQLite.Tokenizer)
    assert found is not None
    assert found.written("TEXT") == "a TEXT PRIMARY KEY DESC"


def test_the_rest_of_the_statement_stays() -> None:
    made = _sqlite("c").statement_with("c TEXT")
    assert made == _SQLITE.replace(" c, ", " c TEXT, ")


@pytest.mark.parametrize("name", ["e", "PRIMARY", "t", "x, NOT NULL"])
def test_what_is_no_column_is_not_found(name: str) -> None:
    assert find_declaration(_MARIADB, name, MySQL.Tokenizer) is None or name == "PRIMARY"


@pytest.mark.parametrize(
    ("declared", "left"),
    [
        (
            "id INTEGER PRIMARY KEY DESC ON CONFLICT ABORT AUTOINCREMENT NOT NULL, b TEXT",
            "id INTEGER  NOT NULL, b TEXT",
        ),
        ("id INT CONSTRAINT k PRIMARY KEY, b TEXT CHECK (b <> ',')", "id INT, b TEXT CHECK (b <> ',')"),
        ("id INT, b TEXT, PRIMARY KEY (id, b), UNIQUE (b)", "id INT, b TEXT, UNIQUE (b)"),
        ("id INT, b TEXT, CONSTRAINT k primary key (id)", "id INT, b TEXT"),
    ],
)
def test_another_primary_key_takes_the_place_of_the_one_there(declared: str, left: str) -> None:
    wanted = f'({left}, PRIMARY KEY ("b")) WITHOUT ROWID'
    assert with_primary_key(f'CREATE TABLE "t (" ({declared}) WITHOUT ROWID', ['"b"'], SQLite.Tokenizer) == wanted


@pytest.mark.parametrize(
    ("options", "left"),
    [(" without rowid", ""), (" STRICT, WITHOUT ROWID", " STRICT"), (" WITHOUT ROWID, STRICT", " STRICT")],
)
def test_a_column_of_the_key_goes_with_the_key_and_with_what_needs_one(options: str, left: str) -> None:
    made = with_primary_key(
        f'CREATE TABLE t ("i d" INT PRIMARY KEY, b, CHECK (b > 1)){options}', [], SQLite.Tokenizer, "I D"
    )
    assert " ".join(made.split()) == f"(b, CHECK (b > 1)){left}"
