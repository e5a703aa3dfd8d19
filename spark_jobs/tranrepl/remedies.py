"""Remedies: what can be done after an error, as commands that can be pasted, in the shell, a task's log and alerts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tranrepl.errors import ErrorKind, ErrorReport
from tranrepl.printable import one_event, one_line

RUNBOOK = "docs/how-to/a-batch-failed.md"
"""Says when to take which way."""

REINITIALIZE = (
    "`tranrepl reinitialize FILE` takes the Publisher's rows; or `tranrepl reinitialize FILE --log-reader`, "
    "then `tranrepl validate FILE --repair`, leaves the Subscribers' rows and corrects those that differ"
)
RUN_SETUP = "run `tranrepl setup FILE`"
FINISH_BATCH = "`tranrepl distribute FILE --single-connection` finishes it"
"""What several errors advise: they take it from here."""

COMMANDS: Mapping[str, str] = {
    "tranrepl check FILE": "reports what keeps the publication from running, and changes nothing",
    "tranrepl setup FILE": "creates what is missing at all ends, and registers what the file changed",
    "tranrepl setup FILE --new-secret": "makes another secret for the messages in the Publisher's log",
    "tranrepl script FILE --publisher": "prints the statements of setup at the Publisher, for a superuser",
    "tranrepl script FILE -s NAME": "prints the generated procedures",
    "tranrepl script FILE --custom": "prints a skeleton of each custom procedure",
    "tranrepl schema": "prints every setting, as JSON Schema",
    "tranrepl run FILE": "reads the log, and delivers to every subscription",
    "tranrepl run FILE -s NAME": "reads the log, and delivers to one subscription",
    "tranrepl run FILE --continuous": "does so until it is stopped",
    "tranrepl log-reader FILE": "reads the log, and delivers nothing",
    "tranrepl snapshot FILE": "copies rows to subscriptions that wait for a snapshot, or completes an interrupted one",
    "tranrepl distribute FILE": "delivers what is stored",
    "tranrepl distribute FILE -s NAME": "delivers what is stored to one subscription",
    "tranrepl distribute FILE --single-connection": "finishes a batch that streams have left unfinished",
    "tranrepl exec FILE --sql SCRIPT.sql": "runs a script at every Subscriber, at its place among the commands",
    "tranrepl status FILE": "shows the state of every agent, and its last error",
    "tranrepl status FILE --acknowledge": "stops counting unresolved errors",
    "tranrepl browse FILE": "shows the stored commands",
    "tranrepl browse FILE --from XACT_SEQNO --to XACT_SEQNO": "shows the commands of a transaction",
    "tranrepl trace FILE": "posts a tracer token",
    "tranrepl trace FILE --list": "shows how long tracer tokens took",
    "tranrepl validate FILE -s NAME": "finds the rows that differ",
    "tranrepl validate FILE -s NAME --article ARTICLE": "compares the rows of an article",
    "tranrepl validate FILE --repair": "corrects the rows that differ at every Subscriber",
    "tranrepl validate FILE -s NAME --repair": "corrects the rows that differ",
    "tranrepl validate FILE -s NAME --article ARTICLE --repair": "corrects the rows of an article that differ",
    "tranrepl reinitialize FILE": "copies all rows again, and begins with a new slot",
    "tranrepl reinitialize FILE --log-reader": "begins with a new slot, and leaves the Subscribers' rows",
    "tranrepl reinitialize FILE --article ARTICLE": "copies the rows of an article again, to every Subscriber",
    "tranrepl reinitialize FILE -s NAME": "copies the rows of a subscription again",
    "tranrepl reinitialize FILE -s NAME --article ARTICLE": "copies the rows of an article again",
    "tranrepl skip FILE -s NAME --xact-seqno XACT_SEQNO": "leaves out the transaction that comes next",
    "tranrepl sequences FILE": "sets the Subscribers' sequences to the Publisher's",
    "tranrepl cleanup FILE": "removes stored commands that every Subscriber has, and old history",
    "tranrepl alert FILE": "imports the notifiers, and sends nothing",
    "tranrepl alert FILE --test": "sends a test alert by each notifier",
}
"""All commands of messages, with the purpose of each. `named` puts names in the place of the words in capitals."""

LONGEST_COMMAND = 1000
"""Characters of a stored command that are shown."""
_LONGEST_KEY = 200
"""Characters of a row's key that are shown."""

_COMMAND = re.compile(r"`tranrepl [^`]*`")


def reinitialize_subscription(name: str) -> str:
    """Return the remedy of a subscription that must be reinitialized."""
    return (
        f"`tranrepl reinitialize FILE -s {name}` reinitializes it; with sync_type: replication_support_only, load the "
        "Publisher's rows into its Subscriber before"
    )


@dataclass(frozen=True, slots=True)
class Place:
    """Where an error happened, as commands name it."""

    settings_file: str = "FILE"
    """Path of the publication's settings."""
    subscription: str = ""
    """Empty: the log reader's, or nobody's."""


@dataclass(frozen=True, slots=True)
class NextStep:
    """What a command is for, and the command. One without a purpose goes on with the step before it."""

    purpose: str
    command: str


def usual_file(publication: str) -> str:
    """Return the path of a publication's settings in a checkout, where no other is known."""
    return f"dags/publications/{publication}.yaml"


def next_steps(error: ErrorReport, place: Place) -> tuple[NextStep, ...]:
    """Return what can be done about an error, in the order to think of it; nothing where its remedy says it all."""
    file, subscription = _quoted(place.settings_file), _quoted(place.subscription)
    if error.kind is ErrorKind.TRANSIENT:
        only = f" -s {subscription}" if place.subscription else ""
        return (
            NextStep("the cause may be gone by now: the next run continues from here", f"tranrepl run {file}{only}"),
        )
    if error.xact_seqno is None or error.damaged_batch:
        return ()
    seqno = f"0x{error.xact_seqno}"
    look = NextStep("look at the transaction", f"tranrepl browse {file} --from {seqno} --to {seqno}")
    if not place.subscription or not (error.schema_change or error.kind is ErrorKind.DATA):
        return (look,)
    article = f" --article {_quoted(error.article)}" if error.article else ""
    run, skip = f"tranrepl run {file} -s {subscription}", f"tranrepl skip {file} -s {subscription} --xact-seqno {seqno}"
    if error.schema_change:
        return (look, NextStep("mend what keeps the table from being altered, then deliver again", run))
    mend = NextStep("mend the Subscriber's rows or table, then deliver again", run)
    if error.not_repaired is not None:
        by_hand = "or skip the transaction, and correct its rows by hand: nothing repairs them"
        return (look, mend, NextStep(f"{by_hand} ({error.not_repaired})", skip))
    return (
        look,
        mend,
        NextStep("or skip the transaction, then correct the rows that it would have changed", skip),
        NextStep("", f"tranrepl validate {file} -s {subscription}{article} --repair"),
    )


def named(text: str, place: Place, article: str | None = None) -> str:
    """Return a remedy whose commands name the file, and the subscription and article where these are known."""
    names = {"FILE": place.settings_file, "NAME": place.subscription, "ARTICLE": article}

    def with_names(found: re.Match[str]) -> str:
        command = found[0]
        for word, name in names.items():
            if name:
                command = re.sub(rf"(?<= ){word}\b", lambda _, name=name: _quoted(name), command)  # type: ignore[misc]
        return command

    return _COMMAND.sub(with_names, text)


def _quoted(name: str) -> str:
    """Return a name as bash reads it, also one with characters that are not shown."""
    if one_line(name) == name:
        return shlex.quote(name)
    spelled = one_line(name.replace("\\", r"\\").replace("'", r"\'"))
    return f"$'{spelled}'"


def facts(error: ErrorReport) -> dict[str, str]:
    """Return what is known of where the error happened, by name; what is not known is left out."""
    known = {
        "error": error.shown_number,
        "transaction": f"0x{error.xact_seqno}" if error.xact_seqno else "",
        "command": "" if error.command_id is None else str(error.command_id),
        "article": one_line(error.article or ""),
        "key": with_short_key(error.key or "", error),
    }
    return {name: value for name, value in known.items() if value}


def step_lines(error: ErrorReport, place: Place) -> Iterator[str]:
    """Yield the ways on as lines of a shell: each purpose is a comment."""
    steps = next_steps(error, place)
    for step in steps:
        if step.purpose:
            yield f"# {step.purpose}"
        yield step.command
    if len(steps) > 1:
        yield f"# when to take which: {RUNBOOK}"


def error_block(error: ErrorReport, place: Place) -> str:
    """Return all there is to say of an error, with the stored command: for those who may see the rows."""
    lines = [one_event(named(with_short_key(error.message, error), place, error.article))]
    shown = facts(error)
    if error.command:
        shown["stored as"] = shortened(error.command)
    width = max(map(len, shown), default=0)
    lines += [f"  {name:{width}}  {value}" for name, value in shown.items()]
    if error.remedy:
        lines += ["", one_event(f"→ {named(error.remedy, place, error.article)}")]
    steps = list(step_lines(error, place))
    return "\n".join([*lines, *(["", *steps] if steps else [])])


def with_short_key(text: str, error: ErrorReport) -> str:
    """Return a text of the error with the beginning of its row's key, where that is long."""
    key = error.shown_key or ""
    return text if len(key) <= _LONGEST_KEY else text.replace(key, f"{key[:_LONGEST_KEY]}… ({len(key):,} characters)")


def shortened(command: str) -> str:
    """Return a stored command; the beginning of a long one, with how long it is."""
    if len(command) <= LONGEST_COMMAND:
        return command
    return f"{command[:LONGEST_COMMAND]}… (the first {LONGEST_COMMAND:,} characters; browse shows all)"
