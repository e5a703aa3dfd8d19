"""Commands applied serially at a PostgreSQL Subscriber: staged by COPY, dispatched by PL/pgSQL."""

from __future__ import annotations

import re
from collections.abc import Mapping
from threading import Event

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from tranrepl.error_numbers import Codes
from tranrepl.errors import ConfigurationError, DataError, ErrorDetails, ErrorKind, ErrorReport, ReplicationError
from tranrepl.jobs.results import MOST_NOTICES
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.call_syntax import arguments
from tranrepl.model.commands import Operation
from tranrepl.postgres.session import Session, translate, translated_errors
from tranrepl.subscriber.batching.commit_batches import (
    LIMIT_EXCEEDED,
    REMEDY,
    longest_command,
    too_long,
    unless_too_long,
)
from tranrepl.subscriber.batching.staging import Census, Kind, StagedText, census_of, copy_text, staging_layout
from tranrepl.subscriber.batching.steps import SerialStep, Step
from tranrepl.subscriber.postgres.bulk_rules import ApplyRules
from tranrepl.subscriber.postgres.destination import Targets
from tranrepl.subscriber.postgres.dispatcher import (
    APPLY,
    FAILED_NOTICE,
    SKIPPED_NOTICE,
    STAGE,
    Masks,
    apply_function,
    stage_table,
)

_MOST_MASKS = 8
_COPY_LINE = re.compile(r"COPY tranrepl_commands, line (\d+)(?:, column s(\d+))?")

_TOO_LONG = re.compile(r"^value too long for type (.+)$")
_TOO_LARGE = re.compile(r"^A field with precision (\d+), scale (\d+) must round")


class SerialApply:
    """Applies commands serially, in order, inside the Subscriber.

    A failing command ends the transaction with its own error, named by its place among those staged; or, where its
    error is one to skip, leaves no trace but what `take_skipped` gives.
    """

    def __init__(
        self,
        session: Session,
        articles: Mapping[int, RegisteredArticle],
        where: str,
        targets: Targets,
        skip_errors: frozenset[str],
        rules: ApplyRules,
        at_work: Event,
    ) -> None:
        self._session = session
        self._at_work = at_work
        self._articles = articles
        self._where = where
        self._targets = targets
        self._rules = rules
        self._skipped_states = Codes.POSTGRES.value.codes_of(skip_errors)
        self._layout = staging_layout((), articles, {})
        self._masks: Masks = {}
        self._failed_command: int | None = None
        self._staged = False
        self.ran_code = False
        """Code of users ran since this was set, and may run at the transaction's end: deferred triggers."""
        self._notes: list[tuple[int, ErrorReport]] = []
        self._skipped: list[ErrorReport] = []
        self._notices: list[str] | None = None
        self._said: list[str] = []
        session.add_notice_handler(self._notice)

    def prepare(self, census: Census) -> None:
        """Make the staging table and the dispatcher ready for commands of these kinds. Not in a transaction that
        applied something, where it can be helped: it is DDL."""
        kinds, masks = census.kinds, self._masks_with(census)
        if kinds.issubset(self._layout.kinds) and masks == self._masks:
            return
        wanted = kinds.union(self._layout.kinds)
        self._targets.find(kind.article_id for kind in wanted)
        layout, self._masks = self._layout, masks
        if not kinds.issubset(layout.kinds):
            types = {
                (kind, argument): self._targets[kind.article_id].type_name(argument)
                for kind in wanted
                for argument in arguments(self._articles[kind.article_id], kind.operation)
            }
            self._layout = staging_layout(wanted, self._articles, types)
        with translated_errors(self._where):
            if self._layout is not layout:
                self._session.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(STAGE))
                self._session.execute(stage_table(self._layout))
            self._session.execute(apply_function(self._layout, self._targets, self._rules, self._skipped_states, masks))

    def _masks_with(self, census: Census) -> Masks:
        """Return the masks that have a statement of their own, and those that are to get one. Not where a trigger may
        ask which columns are set."""
        masks = dict(self._masks)
        for kind, frequent in census.masks.items():
            if kind.operation in self._rules.bulk.operations.get(kind.article_id, ()):
                known = masks.get(kind, ())
                masks[kind] = (*known, *sorted(frequent.difference(known)))[:_MOST_MASKS]
        return masks

    def staged_text(self, commands: pa.Table) -> StagedText | None:
        """Return what `apply` will copy, where the staging table needs no change for it. Another thread calls it."""
        layout, census = self._layout, census_of(commands)
        if len(commands) == 0 or not census.kinds.issubset(layout.kinds):
            return None
        text = unless_too_long(commands, lambda: copy_text(commands, layout))
        return StagedText(layout, census, text) if text is not None else None

    def apply(self, step: Step) -> None:
        """Apply within the open transaction. Raises DataError with the failing command's place and article."""
        commands = step.commands
        if len(commands) == 0:
            return
        made = step.text if isinstance(step, SerialStep) else None
        census = made.census if made is not None else census_of(commands)
        self.prepare(census)
        self.ran_code |= any(self._rules.runs_code(it.article_id, it.operation) for it in census.kinds)
        known = len(self._skipped)
        if self._skipped_states:
            commands = self._stage_without_skipped(commands)
        else:
            self._stage(commands, made)
        self._failed_command, self._notes, self._notices = None, [], []
        self._at_work.set()
        try:
            self._session.execute(sql.SQL("SELECT {}()").format(APPLY))
        except psycopg.Error as error:
            # They may be tried again.
            del self._skipped[known:]
            raise self._at_command(commands, error) from error
        finally:
            self._said += dict.fromkeys(self._notices)
            self._notices = None
        self._skipped += [self._placed(report, commands, place) for place, report in self._notes]

    def _stage(self, commands: pa.Table, made: StagedText | None = None) -> pa.Table:
        known = made.text if made is not None and made.layout is self._layout else None
        text = known or unless_too_long(commands, lambda: copy_text(commands, self._layout))
        if text is None:
            report = too_long(self._where)
            raise self._placed(report, commands, longest_command(commands)).to_exception()
        try:
            if self._staged:
                self._session.execute(sql.SQL("TRUNCATE {}").format(STAGE))
            self._staged = True
            with self._session.cursor().copy(sql.SQL("COPY {} FROM STDIN").format(STAGE)) as copy:
                copy.write(text)
        except psycopg.Error as error:
            raise self._at_command(commands, error) from error
        return commands

    def _stage_without_skipped(self, commands: pa.Table) -> pa.Table:
        """Stage what can be: a value that its type does not take is found here already."""
        while True:
            self._session.execute("SAVEPOINT tranrepl_stage")
            try:
                return self._stage(commands)
            except DataError as error:
                if error.report.code not in self._skipped_states or error.report.xact_seqno is None:
                    raise
                self._session.execute("ROLLBACK TO SAVEPOINT tranrepl_stage")
                self._skipped.append(error.report)
                commands = commands.filter(pc.invert(_is_command(commands, error)))

    def take_skipped(self) -> list[ErrorReport]:
        skipped, self._skipped = self._skipped, []
        return skipped

    def take_notices(self) -> list[str]:
        said, self._said = self._said, []
        return said

    def committed(self) -> None:
        """Note that the commit emptied the staging table."""
        self._staged = False

    def forget(self) -> None:
        """Forget the staging table and its dispatcher: after a rollback they may be gone, where the transaction had
        made them; after a schema change they are of tables as they were."""
        self._layout, self._masks, self._staged = staging_layout((), self._articles, {}), {}, False

    def _notice(self, diagnostic: psycopg.errors.Diagnostic) -> None:
        message = diagnostic.message_primary or ""
        if message.startswith(FAILED_NOTICE):
            self._failed_command = int(message.removeprefix(FAILED_NOTICE))
        elif message.startswith(SKIPPED_NOTICE):
            state, _, text = (diagnostic.message_detail or "").partition(" ")
            report = ErrorReport(
                kind=ErrorKind.DATA, message=f"{self._where}: {text}", **Codes.POSTGRES.value.numbered(state)
            )
            self._notes.append((int(message.removeprefix(SKIPPED_NOTICE)), report))
        elif self._notices is not None and len(self._notices) < MOST_NOTICES:
            self._notices.append(f"{diagnostic.severity_nonlocalized}: {message}")

    def _at_command(self, commands: pa.Table, error: psycopg.Error) -> ReplicationError:
        line = _COPY_LINE.search(error.diag.context or "")
        place = int(line[1]) - 1 if line else self._failed_command
        if place is not None and place >= len(commands):
            # COPY writes many rows at once: by then it has read on to the end.
            place = None
        columns = [] if place is None else self._columns(commands, place, line and line[2], error)
        where = f"{self._where}: column {' or '.join(columns)}" if columns else self._where
        problem = translate(where, error)
        if place is None or not isinstance(problem, (DataError, ConfigurationError)):
            return problem
        if problem.report.code == LIMIT_EXCEEDED:
            problem.add(ErrorDetails(remedy=problem.report.remedy or REMEDY))
        return self._placed(problem.report, commands, place).to_exception()

    def _columns(self, commands: pa.Table, place: int, slot: str | None, error: psycopg.Error) -> list[str]:
        """Return the column that does not take a command's value: the one that has the slot of the staging table, or
        those of the type that the error names."""
        row = commands.slice(place, 1).select(["article_id", "operation"]).to_pylist()[0]
        published = self._articles[row["article_id"]].columns
        if slot is not None:
            taken = self._layout.places[Kind(row["article_id"], Operation(row["operation"]))]
            positions = [it.position for it, of in taken.items() if of == int(slot)]
            return [published[it].name for it in positions if it is not None]
        too_long = _TOO_LONG.search(error.diag.message_primary or "")
        too_large = _TOO_LARGE.search(error.diag.message_detail or "")
        named = too_long[1] if too_long else f"numeric({too_large[1]},{too_large[2]})" if too_large else None
        return [it.name for it in self._targets[row["article_id"]].columns if it.type_name == named]

    def _placed(self, report: ErrorReport, commands: pa.Table, place: int) -> ErrorReport:
        """Return the error with the command at this place."""
        row = commands.slice(place, 1).select(["xact_seqno", "command_id", "article_id"]).to_pylist()[0]
        return report.model_copy(
            update={
                "xact_seqno": row["xact_seqno"].hex(),
                "command_id": row["command_id"],
                "article": str(self._articles[row["article_id"]].source),
            }
        )


def _is_command(commands: pa.Table, error: DataError) -> pa.ChunkedArray:
    seqno = pa.scalar(bytes.fromhex(error.report.xact_seqno or ""), pa.binary())
    return pc.and_(pc.equal(commands["xact_seqno"], seqno), pc.equal(commands["command_id"], error.report.command_id))
