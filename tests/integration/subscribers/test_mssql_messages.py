"""What procedures at SQL Server say: messages, errors of every severity, and transactions of their own."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from support.command_history import Column, History, seqno
from support.subscribers import Rows, Site
from tranrepl.errors import ErrorKind
from tranrepl.jobs.results import JobResult
from tranrepl.model.article import RegisteredArticle
from tranrepl.subscriber.applier_options import ApplierOptions

_ITEM = [Column("id", "integer", key=1), Column("name", "character varying(40)")]
_INSERT = "insert into item values (@id, @name)"
_TWICE = f"{_INSERT} if @id = 2 insert into item values (@id, @name)"
_SKIPPED = ApplierOptions(skip_errors=frozenset({"2627"}))


def _item(site: Site, body: str) -> RegisteredArticle:
    """Return an empty table whose INSERT goes through a procedure with this body."""
    site.execute(
        "if object_id('item') is not null delete from item",
        "if object_id('item_insert') is not null drop procedure item_insert",
        f"create procedure item_insert @id int, @name nvarchar(40) as begin {body} end",
    )
    return site.article("item", _ITEM, ins_cmd="CALL item_insert")


def _deliver(site: Site, body: str, options: ApplierOptions = ApplierOptions()) -> JobResult:  # noqa: B008
    """Deliver three rows, a transaction each, in one commit batch."""
    item, history = _item(site, body), History()
    for number in range(1, 4):
        history.transaction().insert(item, [str(number), "x"])
    return site.deliver(history, options=options)


def _rows(numbers: Sequence[int]) -> Rows:
    return [(number, "x") for number in numbers]


def test_messages_of_low_severity_are_shown_and_stop_nothing(mssql_site: Site) -> None:
    said = "; ".join(f"raiserror ('at %d', {severity}, 1, {severity})" for severity in (0, 5, 10, 11, 12))
    result = _deliver(mssql_site, f"print 'printed'; {said}; {_INSERT}")
    assert result.error is None
    assert [it.partition(": ")[2] for it in result.notices] == ["printed", "at 0", "at 5", "at 10", "at 11", "at 12"]
    assert [it.partition(":")[0] for it in result.notices[-2:]] == ["severity 11", "severity 12"]
    assert mssql_site.rows("item") == _rows([1, 2, 3])
    assert mssql_site.watermark() == seqno(3)


def test_a_message_that_is_sent_at_once_stops_nothing(mssql_site: Site) -> None:
    result = _deliver(mssql_site, f"raiserror ('now', 10, 1) with nowait; {_INSERT}")
    assert result.error is None
    assert [it.partition(": ")[2] for it in result.notices] == ["now"]
    assert mssql_site.rows("item") == _rows([1, 2, 3])


@pytest.mark.parametrize(
    ("body", "number", "text"),
    [
        (f"{_INSERT} if @id = 2 raiserror ('stop %s', 13, 1, @name)", "50000", "stop x"),
        (f"{_INSERT} if @id = 2 throw 51000, 'thrown', 1", "51000", "thrown"),
        # Met after rows that nobody asked for.
        (
            f"{_INSERT} select * from item select 1 as one if @id = 2 raiserror ('late', 16, 1)",
            "50000",
            "late",
        ),
        (f"set xact_abort on {_TWICE}", "2627", ""),
    ],
)
def test_an_error_of_a_procedure_stops_the_delivery_at_its_command(
    mssql_site: Site, body: str, number: str, text: str
) -> None:
    error = _deliver(mssql_site, body).error
    assert error is not None
    assert (error.kind, error.number, error.xact_seqno) == (ErrorKind.DATA, number, seqno(2).hex())
    assert error.message.startswith(f"Subscriber reporting: {text}")
    assert error.message.endswith(" (article public.item, id = 2)")
    assert "DB-Lib" not in error.message
    assert mssql_site.rows("item") == []


def test_what_a_procedure_returns_or_catches_is_no_error(mssql_site: Site) -> None:
    body = f"select 1 as one begin try {_TWICE} end try begin catch print 'caught' end catch return 5"
    result = _deliver(mssql_site, body)
    assert (result.error, len(result.notices)) == (None, 1)
    assert mssql_site.rows("item") == _rows([1, 2, 3])


@pytest.mark.parametrize(
    ("body", "code"),
    [("commit", "266"), ("rollback", "266"), ("commit begin transaction", "266")],
)
def test_a_procedure_that_ends_the_transaction_is_found_out(mssql_site: Site, body: str, code: str) -> None:
    # Where its text does not show it.
    error = _deliver(mssql_site, f"{_INSERT} exec (N'{body}')").error
    assert error is not None
    assert (error.kind, error.database_code) == (ErrorKind.CONFIGURATION, code)
    assert error.remedy is not None
    assert error.remedy.startswith("a procedure that applies commands holds no COMMIT, no ROLLBACK")
    assert mssql_site.watermark() == bytes(8)


def test_an_error_is_skipped_where_it_leaves_the_transaction_open(mssql_site: Site) -> None:
    result = _deliver(mssql_site, _TWICE, _SKIPPED)
    assert (result.error, result.skipped) == (None, 1)
    assert mssql_site.rows("item") == _rows([1, 3])


def test_an_error_that_ends_the_transaction_is_not_skipped(mssql_site: Site) -> None:
    error = _deliver(mssql_site, f"set xact_abort on {_TWICE}", _SKIPPED).error
    assert error is not None
    assert (error.kind, error.number) == (ErrorKind.CONFIGURATION, "2627")
    assert "it cannot be skipped: with it the whole transaction was rolled back" in error.message
    assert error.remedy == "a procedure or trigger whose errors are skipped leaves the transaction open where it fails"
    assert mssql_site.rows("item") == []
