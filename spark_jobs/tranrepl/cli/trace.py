"""The verb trace."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from typing import Annotated

import typer
from rich.markup import escape

from tranrepl.admin.trace import TokenLatency, follow_token, newest_tokens, post_token
from tranrepl.cli.app import app
from tranrepl.cli.arguments import File, JsonOption, load
from tranrepl.cli.output import err, failing_clearly, out, print_json, settings_file, table_of
from tranrepl.cli.status_display import clocks
from tranrepl.errors import ConfigurationError
from tranrepl.model.latency import Leg
from tranrepl.topology import Topology

_PENDING = "pending"


@app.command(epilog="Example: [bold]tranrepl trace dags/publications/shop.yaml --watch[/]")
def trace(
    file: File,
    watch: Annotated[bool, typer.Option("--watch", help="Follow it until every subscription has it.")] = False,
    timeout: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="How long to watch at most.")] = 300,
    listed: Annotated[bool, typer.Option("--list", help="Post none, and show those that were posted.")] = False,
    limit: Annotated[int, typer.Option(min=1, metavar="NUMBER", help="List at most this many.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """Post a tracer token, by which latency is measured leg by leg.

    Like SQL Server's sp_posttracertoken: a mark in the Publisher's log, which
    the next run reads, stores and delivers. Ends with exit status 1 where
    --watch saw the time run out before every subscription had it.
    """
    with failing_clearly():
        topology = load(file)
        if listed and watch:
            raise ConfigurationError("--list posts no token that --watch could follow", remedy="leave one of them out")
        if listed:
            _show(newest_tokens(topology, limit), as_json)
            return
        token = post_token(topology)
        last = _watch(topology, token, timeout, as_json) if watch else TokenLatency(token=token)
        if as_json:
            print_json(last.model_dump(mode="json"))
        elif not watch:
            out.print(
                f"tracer token {token} is in the Publisher's log; after the next run, "
                f"`tranrepl trace {file} --list` shows how long it took",
                highlight=False,
                markup=False,
            )
        else:
            _show([last], as_json)
        if watch and not last.has_arrived:
            raise ConfigurationError(
                f"tracer token {token}: {_missing(last)} within {timeout:g} seconds",
                remedy="`tranrepl run FILE` reads and delivers it, where no schedule does; "
                "`tranrepl trace FILE --list` shows it later",
            )


def _watch(topology: Topology, token: str, timeout: float, as_json: bool) -> TokenLatency:
    """Say what happens to the token; return it as it was last."""
    last = TokenLatency(token=token)
    printed: set[str] = set()
    for last in follow_token(topology, token, timeout):
        for what in _steps(last):
            if what not in printed and not as_json:
                err.print(what, highlight=False, markup=False)
            printed.add(what)
    return last


def _steps(token: TokenLatency) -> list[str]:
    done = [f"tracer token {token.token} is in the Publisher's log"]
    if token.distributor_latency is not None:
        done.append(f"registered after {_duration(token.distributor_latency)}")
    done += [
        f"{it.subscription} has it after {_duration(it.overall_latency)}"
        for it in token.subscriptions
        if it.overall_latency is not None
    ]
    return done


def _missing(token: TokenLatency) -> str:
    if token.tracer_id is None:
        return "the log reader did not register it"
    late = [it.subscription for it in token.subscriptions if it.overall_latency is None]
    return f"subscription {', '.join(late)} did not get it"


def _show(tokens: Sequence[TokenLatency], as_json: bool) -> None:
    if as_json:
        print_json([it.model_dump(mode="json") for it in tokens])
        return
    if not tokens:
        file = settings_file()
        err.print(f"no tracer token is registered: `tranrepl trace {file}` posts one", highlight=False, markup=False)
        return
    legs = [it.in_words.replace("→ ", "→\n") for it in Leg]
    table = table_of("subscription", words=["tracer", "posted (UTC)"], numbers=legs)
    for token in tokens:
        for row in _rows(token):
            table.add_row(*map(escape, row))
    out.print(table)
    differences = [it.clock_difference for it in tokens if it.clock_difference is not None]
    if differences:
        out.print(clocks(differences[0]), highlight=False)


def _rows(token: TokenLatency) -> list[tuple[str, ...]]:
    posted = "" if token.publisher_commit is None else f"{token.publisher_commit.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
    token_of = (str(token.tracer_id or ""), posted)
    registered = _duration(token.distributor_latency)
    return [
        (it.subscription, *token_of, registered, _duration(it.subscriber_latency), _duration(it.overall_latency))
        for it in token.subscriptions
    ] or [("", *token_of, registered, "", "")]


def _duration(seconds: float | None) -> str:
    return _PENDING if seconds is None else f"{seconds:,.3f} s"
