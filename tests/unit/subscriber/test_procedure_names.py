"""Names of generated procedures."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from tranrepl.model.commands import Operation
from tranrepl.model.names import TableName
from tranrepl.settings.publication import Article
from tranrepl.subscriber.capabilities import NameLimit, NameUnit
from tranrepl.subscriber.procedure_names import procedure_name, shared_names

LONGEST = 63
LIMIT = NameLimit(LONGEST, NameUnit.BYTES)


@pytest.mark.parametrize(
    ("operation", "table", "name"),
    [
        (Operation.INSERT, TableName("Purchasing", "Vendor"), "sp_MSins_PurchasingVendor"),
        (Operation.INSERT, TableName("Production", "ProductCategory"), "sp_MSins_ProductionProductCategory"),
        (Operation.UPDATE, TableName("dbo", "EmailTipo"), "sp_MSupd_dboEmailTipo"),
        (Operation.DELETE, TableName("Integration", "TTLanguages"), "sp_MSdel_IntegrationTTLanguages"),
        (Operation.DELETE, TableName("Sales", 'Order "x" 100%'), 'sp_MSdel_SalesOrder "x" 100%'),
    ],
)
def test_names_are_those_of_sql_server(operation: Operation, table: TableName, name: str) -> None:
    assert procedure_name(operation, table, LIMIT) == name


def test_a_name_that_just_fits_is_kept() -> None:
    table = TableName("s" * 20, "t" * (LONGEST - 20 - len("sp_MSins_")))
    assert procedure_name(Operation.INSERT, table, LIMIT) == f"sp_MSins_{table.schema}{table.table}"


def test_a_longer_name_is_cut_and_ends_in_a_hash_that_never_changes() -> None:
    table = TableName("s" * 63, "t" * 63)
    # A Subscriber keeps procedures under this name: another hash would leave them behind.
    assert procedure_name(Operation.INSERT, table, LIMIT) == f"sp_MSins_{'s' * 45}_f35bbb0f"


_parts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=63)


@given(st.sampled_from([Operation.INSERT, Operation.UPDATE, Operation.DELETE]), _parts, _parts, _parts)
def test_names_fit_and_longer_ones_differ_by_table(operation: Operation, schema: str, one: str, other: str) -> None:
    names = [procedure_name(operation, TableName(schema, table), LIMIT) for table in (one, other)]
    assert all(len(name.encode()) <= LONGEST for name in names)
    assert (names[0] == names[1]) == (one == other)


def _article(source: str, command: str = "CALL") -> Article:
    fields = {"ins_cmd": command, "upd_cmd": "S" * (command == "CALL") + command, "del_cmd": command}
    return Article.model_validate({"source": source, **fields})


def test_two_articles_that_would_share_procedures_are_refused() -> None:
    problems = list(shared_names([_article("a.bc"), _article("ab.c"), _article("x.y")], LIMIT))
    assert [problem.message for problem in problems] == [
        f"articles a.bc and ab.c would share the procedure sp_MS{operation}_abc" for operation in ("ins", "upd", "del")
    ]
    assert all(problem.report.remedy for problem in problems)


def test_an_article_without_procedures_shares_none() -> None:
    assert list(shared_names([_article("a.bc"), _article("ab.c", "SQL")], LIMIT)) == []


def test_one_destination_name_in_another_spelling_shares_none() -> None:
    assert list(shared_names([_article("a.bc"), _article("a.Bc")], LIMIT)) == []


@pytest.mark.parametrize(
    ("limit", "kept"),
    [
        (NameLimit(63, NameUnit.BYTES), "ü" * 22),
        (NameLimit(64), "ü" * 45),
        (NameLimit(64, NameUnit.UTF_16), "ü" * 45),
        (NameLimit(), "ü" * 60),
    ],
)
def test_each_database_counts_a_name_in_its_own_unit(limit: NameLimit, kept: str) -> None:
    name = procedure_name(Operation.INSERT, TableName("s", "ü" * 60), limit)
    assert name.removeprefix("sp_MSins_s").split("_")[0] == kept
    assert limit.fits(name)


def test_a_pair_of_utf_16_is_not_cut_in_two() -> None:
    name = procedure_name(Operation.INSERT, TableName("s", "😀" * 60), NameLimit(128, NameUnit.UTF_16))
    assert name.removeprefix("sp_MSins_s").split("_")[0] == "😀" * 54
