"""Walking remedies: what an error's remedy names is done, until it works or ends, and never twice."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from support.site import Site
from support.whole_run import whole_run
from tranrepl.admin.check import check
from tranrepl.admin.reinitialization import PURPOSE_OF, Rows, reinitialize, reinitialize_publication
from tranrepl.errors import ErrorReport, ReplicationError
from tranrepl.jobs.requests import ApplyMode, Repair, SnapshotRequest
from tranrepl.jobs.results import JobResult
from tranrepl.settings.publication import SyncType
from tranrepl.snapshot.reinitialization import mark_for_reinitialization

_COMMAND = re.compile(r"`tranrepl (?P<verb>[a-z-]+) FILE(?P<options>[^`]*)`")
_MOST_STEPS = 12

ByHand = Callable[[Site], Site | None]
"""What a person does; returns the site of another file, where the file is what was changed."""


@dataclass(frozen=True, slots=True)
class Command:
    """`tranrepl VERB FILE OPTIONS`."""

    verb: str
    options: str = ""

    def __str__(self) -> str:
        return f"{self.verb} FILE{self.options}"

    def option(self, *names: str) -> str | None:
        """Return the value of an option."""
        words = self.options.split()
        return next((words[at + 1] for at, word in enumerate(words[:-1]) if word in names), None)


RUN, SETUP = Command("run"), Command("setup")


def commands_of(remedy: str | None) -> list[list[Command]]:
    """Return the ways that a remedy names, each a sequence: commands with "then" between them belong together."""
    ways: list[list[Command]] = []
    end = 0
    for found in _COMMAND.finditer(remedy or ""):
        command = Command(found["verb"], found["options"])
        if ways and "then" in (remedy or "")[end : found.start()].split():
            ways[-1].append(command)
        else:
            ways.append([command])
        end = found.end()
    return ways


class CircleError(AssertionError):
    """The same error of the same command a second time."""


@dataclass(slots=True)
class Walk:
    """From a command that fails to one that works.

    `by_hand`: what a person does before a verb's first time, as its remedy asks. `edit`: what a person does where a
    remedy names no command. `choice`: which of several ways is taken, as far as there are so many.
    """

    site: Site
    by_hand: Mapping[str, ByHand] = field(default_factory=dict)
    edit: ByHand | None = None
    choice: int = 0
    trail: list[str] = field(default_factory=list)
    _seen: set[tuple[str, str]] = field(default_factory=set)

    def until(self, goal: Command) -> list[str]:
        """Walk until `goal` works. Return what was met on the way."""
        left = [goal]
        for _ in range(_MOST_STEPS):
            if not left:
                return self.trail
            errors = self._errors(left[-1])
            if not errors:
                left.pop()
                continue
            left += reversed(self._way_on(left[-1], errors))
        raise AssertionError(f"nothing works after {_MOST_STEPS} steps:\n" + "\n".join(self.trail))

    def _errors(self, command: Command) -> list[ErrorReport]:
        by_hand = dict(self.by_hand)
        if (do := by_hand.pop(command.verb, None)) is not None:
            self.by_hand = by_hand
            self.site = do(self.site) or self.site
        errors = execute_command(self.site, command)
        said = "; ".join(f"{it.message} → {it.remedy}" for it in errors)
        self.trail.append(f"{command}: {said or 'works'}")
        met = (str(command), "; ".join(it.message for it in errors))
        if errors and met in self._seen:
            raise CircleError("a circle:\n" + "\n".join(self.trail))
        self._seen.add(met)
        return errors

    def _way_on(self, failed: Command, errors: list[ErrorReport]) -> list[Command]:
        """Return the commands of the first error that names some."""
        ways = next((found for it in errors if (found := commands_of(it.remedy))), None)
        if ways is not None:
            way = ways[min(self.choice, len(ways) - 1)]
            # What failed is tried again in any case.
            return way[:-1] if way[-1] == failed and len(way) > 1 else way
        if self.edit is None:
            raise AssertionError("it ends without a command:\n" + "\n".join(self.trail))
        self.site, self.edit = self.edit(self.site) or self.site, None
        return []


def execute_command(site: Site, command: Command) -> list[ErrorReport]:
    """Run the command in this process, and return what it ends with."""
    try:
        return [it.error for it in _VERBS[command.verb](site, command).values() if it.error is not None]
    except ReplicationError as error:
        return [error.report]


def reinitialize_all(site: Site, rows: Rows) -> Mapping[str, JobResult]:
    """Run `tranrepl reinitialize FILE`, for all subscriptions."""
    checked = check(site.topology, PURPOSE_OF[rows])
    for problem in checked.blocking:
        raise problem

    def take_snapshot(name: str) -> JobResult:
        return site.take_snapshot(subscription=name)

    return reinitialize_publication(site.topology, checked, rows, site.read_log, take_snapshot, lambda _: None)


def _subscription(site: Site, command: Command) -> str:
    return command.option("-s", "--subscription") or site.publication.subscriptions[0].name


def _set_up(site: Site, _command: Command) -> Mapping[str, JobResult]:
    site.set_up()
    return {}


def _snapshot(site: Site, command: Command) -> Mapping[str, JobResult]:
    article = command.option("--article", "-a")
    return {"snapshot": site.take_snapshot(*filter(None, [article]), subscription=_subscription(site, command))}


def _deliver(site: Site, command: Command) -> Mapping[str, JobResult]:
    single = "--single-connection" in command.options
    mode = ApplyMode.SINGLE_CONNECTION if single else ApplyMode.STREAMS
    return {"distribute": site.deliver(_subscription(site, command), mode=mode)}


def _validate(site: Site, command: Command) -> Mapping[str, JobResult]:
    repair = Repair.APPLY if "--repair" in command.options.split() else Repair.NONE
    articles = tuple(filter(None, [command.option("--article")]))
    return {"validate": site.validate(_subscription(site, command), articles=articles, repair=repair)}


def _reinitialize(site: Site, command: Command) -> Mapping[str, JobResult]:
    name, article = command.option("-s", "--subscription"), command.option("--article", "-a")
    if name is None:
        return reinitialize_all(site, Rows.KEPT if "--log-reader" in command.options else Rows.SNAPSHOT)
    if site.publication.subscription(name).sync_type is not SyncType.AUTOMATIC:
        assert article is None, "a subscription that takes no snapshots begins anew as a whole"
        reinitialize(site.topology, name)
        return {}
    articles = (article,) if article is not None else ()
    request = SnapshotRequest(publication=site.publication, subscription=name, articles=articles)
    mark_for_reinitialization(request, site.topology)
    return {"snapshot": site.take_snapshot(*articles, subscription=name)}


_VERBS: dict[str, Callable[[Site, Command], Mapping[str, JobResult]]] = {
    "run": lambda site, _: whole_run(site),
    "setup": _set_up,
    "log-reader": lambda site, _: {"log reader": site.read_log()},
    "distribute": _deliver,
    "snapshot": _snapshot,
    "validate": _validate,
    "reinitialize": _reinitialize,
}
