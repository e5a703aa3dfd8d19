"""Custom procedures of a SQL Server shop, made by its scripts (`custom_procedures`) and called by deliveries."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from support.command_history import Column, History, registered, seqno, table_description
from support.subscribers import KEY, Site, batches
from tranrepl.errors import ErrorKind
from tranrepl.model.names import TableName
from tranrepl.settings.publication import Article
from tranrepl.subscriber.registry import dialect_of

_SCRIPTS = Path(__file__).parent / "custom_procedures"
_VENDOR = [
    Column("VendorID", "integer", key=1),
    Column("AccountNumber", "character varying(15)", not_null=True),
    Column("Name", "character varying(50)", not_null=True),
    Column("CreditRating", "smallint", not_null=True),
    Column("PreferredVendorStatus", "boolean", not_null=True),
    Column("ActiveFlag", "boolean", not_null=True),
    Column("PurchasingWebServiceURL", "character varying(1024)"),
    Column("ModifiedDate", "timestamp(2) without time zone", not_null=True),
]
_PART = [
    Column("id", "integer", key=1),
    Column("name", "character varying(40)", not_null=True),
    Column("price", "numeric(10,2)"),
]
_BOLT, _NUT = ["1", "bolt", "2.50"], ["2", "nut", None]


def _run_script(site: Site, name: str) -> None:
    site.execute(*batches((_SCRIPTS / f"{name}.sql").read_text()))


def _texts(site: Site) -> dict[str, str]:
    """Return the catalogue's text of every procedure."""
    rows = site.execute("select name, object_definition(object_id) from sys.procedures")
    return dict(rows)


def _problems(site: Site, table: str, columns: list[Column], **settings: str) -> list[str]:
    """Return what `check` finds wrong with the article's custom procedures."""
    name = TableName("public", table)
    article = Article.model_validate({"source": name, "destination": TableName("dbo", table), **settings})
    described = table_description(name, columns)
    with dialect_of(site.connection).subscriber(site.connection, KEY, "test") as subscriber:
        made = registered(article, described, 1)
        return [it.message.partition(": procedure ")[2] for it in subscriber.custom_problems(made, described)]


def test_the_documents_procedures_of_vendor_work_as_they_are(mssql_site: Site) -> None:
    site = mssql_site
    _run_script(site, "vendor")
    commands = {
        "ins_cmd": "CALL sp_MSins_PurchasingVendor",
        "upd_cmd": "SCALL [sp_MSupd_PurchasingVendor]",
        "del_cmd": "CALL [dbo].[sp_MSdel_PurchasingVendor]",
    }
    before = _texts(site)
    vendor = site.article("Vendor", _VENDOR, destination=TableName("Purchasing", "Vendor"), **commands)
    made = set(_texts(site)) - set(before)
    assert {name: text for name, text in _texts(site).items() if name in before} == before
    assert not [it for it in made if "Vendor" in it]
    assert _problems(site, "Vendor", _VENDOR, **commands) == []

    one = ["1", "ACME001", "Acme", "1", "t", "t", None, "2024-01-01 10:20:30.12"]
    two = ["2", "BIKE002", "Bikes", "5", "f", "t", "http://bikes", "2024-01-02 00:00:00"]
    history = History().insert(vendor, one).insert(vendor, two).insert(vendor, ["3", *two[1:]])
    changed = ["1", "ACME001", "Acme's", "2", "t", "f", "http://acme", "2024-01-03 00:00:00"]
    history.transaction().update(vendor, one, changed)
    history.update(vendor, two, [*two[:6], None, two[7]]).delete(vendor, ["3", *two[1:]])
    assert site.deliver(history).error is None
    rows = site.execute(
        "select VendorID, AccountNumber, Name, CreditRating, PreferredVendorStatus, ActiveFlag, "
        "PurchasingWebServiceURL, convert(nvarchar(30), ModifiedDate, 121) from Purchasing.Vendor order by 1"
    )
    assert rows == [
        (1, "ACME001", "Acme's", 2, True, False, "http://acme", "2024-01-03 00:00:00.000"),
        (2, "BIKE002", "Bikes", 5, False, True, None, "2024-01-02 00:00:00.000"),
    ]
    missing = History(xact=2).transaction().update(vendor, ["9", *one[1:]], ["9", *changed[1:]])
    error = site.deliver(missing, seqno(2)).error
    assert error is not None
    assert (error.kind, error.number) == (ErrorKind.DATA, "20598")
    assert error.message == (
        "Subscriber reporting: The row was not found at the Subscriber when applying the replicated UPDATE command "
        "for Table 'Purchasing.Vendor' with Primary Key(s): VendorID = 9"
    )


def test_procedures_of_call_are_called_with_new_values_and_old_key(mssql_site: Site) -> None:
    site = mssql_site
    _run_script(site, "call")
    commands = {"ins_cmd": "CALL part_insert", "upd_cmd": "CALL dbo.part_update", "del_cmd": "CALL part_close"}
    part = site.article("part_call", _PART, **commands)
    assert _problems(site, "part_call", _PART, **commands) == []
    history = History().insert(part, _BOLT).insert(part, _NUT)
    history.transaction().update(part, _BOLT, ["3", "bolt", None]).update(part, _NUT, ["2", "wing nut", "0.10"])
    history.transaction().delete(part, ["2", "wing nut", "0.10"])
    result = site.deliver(history)
    assert (result.error, result.notices) == (None, ("severity 0: closed 2",))
    assert site.rows("part_call") == [(2, "wing nut", Decimal("0.10"), True), (3, "bolt", None, False)]
    again = History(xact=3).transaction().update(part, ["2", "wing nut", "0.10"], _NUT)
    error = site.deliver(again, seqno(3)).error
    assert error is not None
    assert (error.number, error.command_id) == ("20598", 1)


def test_a_procedure_of_scall_reads_the_mask(mssql_site: Site) -> None:
    site = mssql_site
    _run_script(site, "scall")
    command = "SCALL [audit].[part update]"
    part = site.article("part_scall", _PART, upd_cmd=command)
    # The last parameter has a default, and is not passed.
    assert _problems(site, "part_scall", _PART, upd_cmd=command) == []
    history = History().insert(part, _BOLT).insert(part, _NUT)
    history.transaction().update(part, _BOLT, ["1", "bolt", None]).update(part, _NUT, ["2", "wing nut", "0.10"])
    assert site.deliver(history).error is None
    assert site.rows("part_scall") == [(1, "bolt", None), (2, "wing nut", Decimal("0.10"))]
    assert site.rows("part_scall_audit") == [
        (1, 1, "price", None),
        (2, 2, "name", "wing nut"),
        (3, 2, "price", "0.10"),
    ]


def test_a_procedure_of_mcall_may_count_transactions_up_and_down(mssql_site: Site) -> None:
    site = mssql_site
    _run_script(site, "mcall")
    part = site.article("part_mcall", _PART, upd_cmd="MCALL part_merge")
    assert _problems(site, "part_mcall", _PART, upd_cmd="MCALL part_merge") == []
    history = History().insert(part, _BOLT).insert(part, _NUT)
    history.transaction().update(part, _BOLT, ["1", "bolt", "2.00"]).update(part, _NUT, ["3", "nut", "1.00"])
    result = site.deliver(history)
    assert result.error is None
    assert [it.partition(": ")[2] for it in result.notices] == ["the price of 1 falls"]
    assert site.rows("part_mcall") == [(1, "bolt", Decimal("2.00")), (3, "nut", Decimal("1.00"))]
    # It fails, and rolls back more than what it has begun.
    clash = History(xact=2).transaction().insert(part, ["4", "screw", None])
    clash.update(part, ["3", "nut", "1.00"], ["1", "nut", "1.00"])
    error = site.deliver(clash, seqno(2)).error
    assert error is not None
    assert error.kind in (ErrorKind.DATA, ErrorKind.CONFIGURATION)
    assert site.rows("part_mcall") == [(1, "bolt", Decimal("2.00")), (3, "nut", Decimal("1.00"))]
    assert site.watermark() == seqno(2)


def test_procedures_of_xcall_see_old_and_new_values(mssql_site: Site) -> None:
    site = mssql_site
    _run_script(site, "xcall")
    commands = {"upd_cmd": "XCALL part_changed", "del_cmd": "XCALL part_gone"}
    part = site.article("part_xcall", _PART, **commands)
    assert _problems(site, "part_xcall", _PART, **commands) == []
    history = History().insert(part, _BOLT).insert(part, _NUT)
    history.transaction().update(part, _BOLT, ["1", "bolt", None]).update(part, _NUT, ["5", "nut", "0.10"])
    history.transaction().delete(part, ["1", "bolt", None])
    assert site.deliver(history).error is None
    assert site.rows("part_xcall") == [(5, "nut", Decimal("0.10"))]
    assert site.rows("part_xcall_history") == [
        (1, "U", 1, Decimal("2.50"), None),
        (2, "U", 2, None, Decimal("0.10")),
        (3, "D", 1, None, None),
    ]
    missing = History(xact=3).transaction().update(part, _BOLT, [*_BOLT[:2], "3.00"])
    error = site.deliver(missing, seqno(3)).error
    assert error is not None
    # Raised after the rows of the history, and before those of a SELECT.
    assert (error.number, error.command_id) == ("20598", 1)


@pytest.mark.parametrize(
    ("parameters", "body", "problem"),
    [
        (None, "", "does not exist; it is called with 5 arguments"),
        ("@a int, @b int", "return", "takes 2 arguments; it is called with 5"),
        ("@a int, @b int, @c int, @d int, @e binary(1), @f int", "return", "takes 6 arguments; it is called with 5"),
        ("@a int, @b int, @c int, @d int, @e int", "return", "takes the mask as @e int; it needs binary(1)"),
        ("@a int, @b int, @c int, @d int, @e binary(1)", "commit", "ends the transaction"),
        ("@a int, @b int, @c int, @d int, @e binary(1)", "begin transaction", "ends the transaction"),
    ],
)
def test_a_custom_procedure_that_cannot_be_called_is_found(
    mssql_site: Site, parameters: str | None, body: str, problem: str
) -> None:
    name = "part_refused"
    mssql_site.execute(f"if object_id('{name}') is not null drop procedure {name}")
    if parameters is not None:
        mssql_site.execute(f"create procedure {name} {parameters} as begin {body} end")
    (found,) = _problems(mssql_site, "part_refused", _PART, upd_cmd=f"SCALL {name}")
    assert found.startswith(f"{name} {problem}")
