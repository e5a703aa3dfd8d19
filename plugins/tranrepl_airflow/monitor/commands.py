"""The commands page: what is stored, by transaction, as `sp_browsereplcmds` shows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import groupby

from pydantic import BaseModel

from tranrepl.admin.browse import BrowsedCommand
from tranrepl.admin.command_pages import CommandChoice, CommandPlace, CountedTransaction, StoredCommands
from tranrepl.distributor.database import DistributionDatabase
from tranrepl.errors import ConfigurationError, ReplicationError
from tranrepl.subscriber.base.dialect import Dialect
from tranrepl.subscriber.registry import dialect_of
from tranrepl_airflow.job_connections import resolve_connections
from tranrepl_airflow.monitor.errors import ShownError, open_failures
from tranrepl_airflow.monitor.publications import MonitoredPublication
from tranrepl_airflow.monitor.queries import query_store, store_problem

LONGEST_SHOWN = 500
"""Characters of a command; the rest is shown on demand."""
LONGEST_WHOLE = 1_000_000
"""Characters of a command that is shown on demand."""
MOST_TRANSACTIONS = 100
MOST_COMMANDS = 100
_BEFORE_THE_FAILING = 20


class Command(BaseModel):
    """A stored command. `command` is cut; `characters` says how many it has."""

    command_id: int
    article: str
    operation: str
    command: str
    characters: int
    """What a schema change runs at the first Subscriber, each cut as `command` is."""


class Count(BaseModel):
    """How many commands of a kind a transaction has."""

    article: str
    operation: str
    commands: int


class Transaction(BaseModel):
    """A transaction, as far as it is on the page."""

    xact_seqno: str
    commit_time: datetime
    counts: list[Count]
    commands: list[Command] | None
    """None for those who may not see values of rows."""


class Place(BaseModel):
    """Where a page begins: the addresses' `from` and `from_command`."""

    xact_seqno: str
    command_id: int


class CommandsAnswer(BaseModel):
    """A page of stored commands."""

    publication: str
    problem: str | None = None
    """Why nothing is shown: the publication is not set up, or its store cannot be read from here."""
    begin: Place | None = None
    """Where the page begins; None: with the first stored command."""
    marked: int | None = None
    """The failing command's id, in the first transaction of the page."""
    transactions: list[Transaction] = []
    next: Place | None = None
    """Where the next page begins; None where nothing follows."""
    failures: list[ShownError] = []


@dataclass(frozen=True, slots=True)
class CommandsQuestion:
    """Asks a publication's distribution database and its store. `values`: whether the reader may see values of rows."""

    publication: MonitoredPublication
    values: bool

    def page(self, choice: CommandChoice, failing: str | None) -> CommandsAnswer:
        """Return a page. With `failing`, a subscription, it begins a little before the command that this stopped at."""
        answer = query_store(self.publication, partial(self._page, choice, failing))
        if isinstance(answer, ReplicationError):
            return CommandsAnswer(
                publication=self.publication.publication, problem=store_problem(self.publication, answer)
            )
        return answer

    def command(self, place: CommandPlace) -> BrowsedCommand | None:
        """Return a command, not longer than is ever shown; None where it is not stored. Raises ReplicationError."""
        answer = query_store(self.publication, lambda database: self._stored(database).command(place))
        if isinstance(answer, ReplicationError):
            raise answer
        return answer

    def _stored(self, database: DistributionDatabase) -> StoredCommands:
        return StoredCommands(database, self.publication.publication, *self._shown())

    def _shown(self) -> tuple[Dialect | None, str | None]:
        """Return the dialect and the subscription of the first Subscriber, for which `tranrepl browse` shows commands;
        None where no connection is."""
        for subscription in self.publication.subscriptions:
            with suppress(ConfigurationError):
                connections = resolve_connections([subscription.connection])
                return dialect_of(connections.by_id[subscription.connection]), subscription.name
        return None, None

    def _page(self, choice: CommandChoice, failing: str | None, database: DistributionDatabase) -> CommandsAnswer:
        failures = open_failures(database, self.publication, values=self.values)
        stopped = next((it for it in failures if it.subscription == failing and it.stops_delivery), None)
        if stopped is not None:
            choice = replace(choice, begin=_shortly_before(stopped))
        stored = self._stored(database)
        if self.values:
            found = stored.page(replace(choice, most=MOST_COMMANDS))
            transactions, following = shown_transactions(found.commands), found.next
        else:
            counted = stored.transactions(replace(choice, most=MOST_TRANSACTIONS, key=None))
            transactions, following = [_with_counts(it) for it in counted.transactions], counted.next
        return CommandsAnswer(
            publication=self.publication.publication,
            begin=None if choice.begin == CommandPlace() else _place(choice.begin),
            marked=None if stopped is None else stopped.command_id,
            transactions=transactions,
            next=None if following is None else _place(following),
            failures=failures,
        )


def _shortly_before(failure: ShownError) -> CommandPlace:
    command_id = max(0, (failure.command_id or 0) - _BEFORE_THE_FAILING)
    return CommandPlace(bytes.fromhex((failure.xact_seqno or "").removeprefix("0x")), command_id)


def _place(place: CommandPlace) -> Place:
    return Place(xact_seqno=place.xact_seqno.hex(), command_id=place.command_id)


def shown_transactions(commands: Sequence[BrowsedCommand]) -> list[Transaction]:
    """Return commands by transaction, long ones cut."""
    return [_transaction(list(them)) for _, them in groupby(commands, lambda it: it.xact_seqno)]


def _transaction(commands: list[BrowsedCommand]) -> Transaction:
    return Transaction(
        xact_seqno=commands[0].xact_seqno,
        commit_time=commands[0].commit_time,
        counts=_counts(Counter((it.article, it.operation) for it in commands)),
        commands=[
            Command(
                command_id=it.command_id,
                article=it.article,
                operation=it.operation,
                command=it.command[:LONGEST_SHOWN],
                characters=len(it.command),
            )
            for it in commands
        ],
    )


def _with_counts(counted: CountedTransaction) -> Transaction:
    return Transaction(
        xact_seqno=counted.xact_seqno,
        commit_time=counted.commit_time,
        counts=_counts(counted.commands),
        commands=None,
    )


def _counts(counter: Counter[tuple[str, str]]) -> list[Count]:
    return [Count(article=article, operation=it, commands=number) for (article, it), number in counter.items()]
