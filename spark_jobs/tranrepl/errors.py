"""Errors, one class per kind. A retry is decided by the class, never by the text."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Concatenate, ParamSpec

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationInfo, field_validator

from tranrepl import __version__
from tranrepl.printable import one_line, printable

ROW_NOT_FOUND = "20598"
"""SQL Server's number for an UPDATE or DELETE command that met no row at the Subscriber."""


SUBSCRIPTION_DEACTIVATED = "21011"
"""SQL Server's number for subscriptions that clean-up has marked inactive."""

MUST_BE_REINITIALIZED = "21074"
"""SQL Server's number for a subscription that was marked inactive and must be reinitialized."""

VALIDATION_FAILED = "20574"
"""SQL Server's number for a Subscriber whose article has failed data validation."""


INCONSISTENT_DISTRIBUTION_DATABASE = "18846"
"""SQL Server's number for a distribution database that does not fit the Publisher's log."""


ARTICLE_DOES_NOT_EXIST = "20027"
"""SQL Server's number for an article that is not there: the file names a table that is not replicated any more."""

NOT_REGISTERED = "50001"
"""Ours, the first number that SQL Server leaves to users: the file was edited, and not set up since."""

SNAPSHOT_NOT_AVAILABLE = "21075"
"""SQL Server's number for a subscription, or an article of it, that waits for its initial snapshot."""

_KEY = re.compile(r"with Primary Key\(s\): (.+)")
"""What SQL Server's messages say of a command's row."""


class ErrorKind(StrEnum):
    TRANSIENT = "transient"
    DATA = "data"
    CONFIGURATION = "configuration"
    FENCED = "fenced"
    INTERNAL = "internal"


class _ErrorMessage(BaseModel):
    kind: ErrorKind
    message: str
    """What happened and where."""

    @field_validator("message")
    @classmethod
    def _shown(cls, message: str, known: ValidationInfo) -> str:
        # An error of the data may be in a value's own words.
        return one_line(message) if known.data.get("kind") is ErrorKind.DATA else printable(message)


_OneLine = Annotated[str, AfterValidator(one_line)]


class ErrorDetails(BaseModel):
    """What may be known of an error beside its message: the keyword arguments that an exception is made with."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    remedy: Annotated[str, AfterValidator(printable)] | None = None
    """What to do about it."""
    number: str | None = None
    """SQL Server's number."""
    database_code: str | None = None
    """The database's own: an SQLSTATE, or its number. None where the error is not a database's."""
    xact_seqno: str | None = None
    """The transaction, in hexadecimal."""
    command_id: int | None = None
    article: str | None = None
    schema_change: bool = False
    """The delivery stopped before a schema change, which was not applied."""
    not_repaired: str | None = None
    """Why a validation does not correct the article's rows; None where it does, or where no article is known."""
    damaged_batch: bool = False
    """A batch is not in the store as it was registered."""
    key: _OneLine | None = None
    """The failing command's row, as `id = 5`."""
    command: _OneLine | None = None
    """The failing command as text. It is for `MSrepl_errors` and the task's log: other places show no values but the
    key's."""


class ErrorReport(ErrorDetails, _ErrorMessage):
    """Everything that is known of an error: an exception carries it; a job's result, an XCom, an alert and a row of
    `MSrepl_errors` are made from it."""

    @property
    def code(self) -> str | None:
        """Return what the source itself said: the database's own code, or our number."""
        return self.database_code or self.number

    @property
    def shown_number(self) -> str:
        """Return SQL Server's number, then the database's own: `2627 (23505)`, `2627`, `without number (53300)`, or
        nothing."""
        own = f"({self.database_code})" if self.database_code and self.database_code != self.number else ""
        return " ".join(filter(None, [self.number or ("without number" if own else ""), own]))

    @property
    def shown_key(self) -> str | None:
        """Return the failing command's row, as `id = 5`, also where the message alone names it."""
        named = _KEY.search(self.message)
        return self.key or (named[1] if named else None)

    @property
    def says_log_was_reset(self) -> bool:
        """Whether what is registered does not lie on the Publisher's log, so that nothing stored may be delivered."""
        return self.number == INCONSISTENT_DISTRIBUTION_DATABASE

    def plus(self, details: ErrorDetails) -> ErrorReport:
        """Return the report with what is known beside it, or other than it has."""
        return self.model_copy(update=details.model_dump(exclude_unset=True))

    def to_exception(self) -> ReplicationError:
        """Return an exception of the kind's class that carries this report."""
        exception = CLASS_OF_KIND[self.kind](self.message)
        exception.report = self
        return exception


_Details = ParamSpec("_Details")


def _with_details_of(
    _: Callable[_Details, ErrorDetails],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, str, _Details], None]]:
    """Give `__init__` the types of these keyword arguments, which are written down once: in ErrorDetails."""
    return lambda init: init


class ReplicationError(Exception):
    """Base of all errors this package raises on purpose.

    It carries its report, and `details` are the report's fields.
    """

    kind: ClassVar[ErrorKind] = ErrorKind.INTERNAL

    @_with_details_of(ErrorDetails)
    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.report = ErrorReport(kind=self.kind, message=message, **details)

    @property
    def message(self) -> str:
        return self.report.message

    def __str__(self) -> str:
        return f"{self.message}\n{self.report.remedy}" if self.report.remedy else self.message

    def add(self, details: ErrorDetails) -> None:
        """Add to what is known of the error, or replace it."""
        self.report = self.report.plus(details)


class TransientError(ReplicationError):
    """A lost connection, a deadlock, a timeout: the same work may succeed when it is tried again."""

    kind = ErrorKind.TRANSIENT


class DataError(ReplicationError):
    """A command that the Subscriber's data refuses: row not found, duplicate key, constraint, value out of range."""

    kind = ErrorKind.DATA


class ConfigurationError(ReplicationError):
    """Settings or a database that must be changed by a person before anything can go on."""

    kind = ErrorKind.CONFIGURATION


class MustBeReinitializedError(ConfigurationError):
    """What is registered of the Publisher's log and the log itself do not fit together any more: the
    publication must be reinitialized."""


class NotReplicatedError(ConfigurationError):
    """The log was read to its end, and a table that the file names is not replicated any more; setup replicates it
    again."""


class CustomProcedureError(ConfigurationError):
    """A custom procedure is missing at the Subscriber, or declared otherwise than it is called."""


class MissingRightError(ConfigurationError):
    """Our role at a server lacks rights that setup or the jobs need; somebody else may do it instead."""


class JobRightError(MissingRightError):
    """The jobs need the right, and setup does not: they may log in as somebody else."""


class FencedError(ReplicationError):
    """Another job did, or is doing, this very work. Nothing was changed by this one."""

    kind = ErrorKind.FENCED


class InternalError(ReplicationError):
    """A state that this package promises never to reach."""


CLASS_OF_KIND: dict[ErrorKind, type[ReplicationError]] = {
    ErrorKind.TRANSIENT: TransientError,
    ErrorKind.DATA: DataError,
    ErrorKind.CONFIGURATION: ConfigurationError,
    ErrorKind.FENCED: FencedError,
    ErrorKind.INTERNAL: InternalError,
}


def newer_version(where: str, version: str) -> ConfigurationError:
    """Return the refusal to work with tables that a newer version of tranrepl made."""
    return ConfigurationError(
        f"{where}: made by tranrepl {version}, which is newer than this one, {__version__}",
        remedy=f"install that version here: pip install 'tranrepl>={version}'",
    )
