"""The design of a SQL Server Publisher covers every method of the protocol, and none that it no longer has."""

from __future__ import annotations

import re

import pytest

from support.checkout import CHECKOUT
from tranrepl.connections import Connection
from tranrepl.errors import ConfigurationError
from tranrepl.publisher.publisher import Publisher, SchemaChanges
from tranrepl.publisher.registry import publisher_database

_PAGE = CHECKOUT / "docs" / "explanation" / "sql-server-publisher.md"
_HEADS = re.compile(r"^(?:- )?((?:`\w+`(?:, | and )?)+)(?::| are)", re.MULTILINE)
"""What an item of a list, or a sentence at the margin, is about."""
_NAME = re.compile(r"`(\w+)`")


def _protocol_part() -> str:
    text = _PAGE.read_text(encoding="utf-8")
    return text.partition("## The protocol, method by method")[2].partition("\n## ")[0]


def _members(protocol: type) -> set[str]:
    return {name for name in vars(protocol) if not name.startswith("_")}


def test_the_design_names_all_that_the_publisher_protocol_asks() -> None:
    named = set(_NAME.findall(_protocol_part()))
    assert (_members(Publisher) | _members(SchemaChanges)) - named == set()


def test_the_design_speaks_of_no_method_that_the_protocol_lacks() -> None:
    about = {name for heads in _HEADS.findall(_protocol_part()) for name in _NAME.findall(heads)}
    assert len(about) > 30
    assert about - _members(Publisher) - _members(SchemaChanges) == set()


def test_a_publisher_of_type_mssql_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="is of type 'mssql'"):
        publisher_database(Connection("source", "mssql"))
