"""Registered batches, read with Spark. A batch that is gone or damaged is an error, never fewer commands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import unquote

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from tranrepl.distributor.command_file import count_commands, mounted_path
from tranrepl.distributor.database import Batch, PublicationRecord
from tranrepl.distributor.store import folder_path
from tranrepl.errors import ConfigurationError, InternalError, ReplicationError, TransientError
from tranrepl.jobs import LOST_WORKER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_batches(spark: SparkSession, record: PublicationRecord, batches: Sequence[Batch]) -> DataFrame:
    """The commands of these batches. Raises ConfigurationError where one is not in the store as it was registered."""
    for batch in batches:
        _require_all_commands(record, batch)
    with batch_errors(record, batches):
        commands = spark.read.parquet(*(folder_path(record, batch.folder) for batch in batches))
        # Of several folders, Spark passes over an empty one without a word.
        found = {PurePosixPath(unquote(file)).parent.name for file in commands.inputFiles()}
    for batch in batches:
        if batch.folder not in found:
            raise _damaged(record, batch, "it holds no commands")
    return commands


def _require_all_commands(record: PublicationRecord, batch: Batch) -> None:
    """Where the store is mounted here, it costs nothing to ask."""
    folder = mounted_path(folder_path(record, batch.folder))
    if folder is None:
        return
    try:
        count = count_commands(folder)
    except (OSError, ValueError) as error:
        raise _damaged(record, batch, str(error)) from error
    if count != batch.commands:
        raise _damaged(record, batch, f"it holds {count} commands, {batch.commands} are registered")


@contextmanager
def batch_errors(record: PublicationRecord, batches: Sequence[Batch]) -> Iterator[None]:
    """What Spark says of a job over these batches, as errors of ours."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise _translated(record, batches, str(error)) from error


_UNREADABLE = (
    "PATH_NOT_FOUND",
    "UNABLE_TO_INFER_SCHEMA",
    "FAILED_READ_FILE",
    "CANNOT_READ_FILE_FOOTER",
    "FileNotFoundException",
    "FILE_NOT_EXIST",
)


def _translated(record: PublicationRecord, batches: Sequence[Batch], text: str) -> ReplicationError:
    if LOST_WORKER in text:
        return TransientError(
            "the Python worker that delivered was killed; its open transaction is rolled back",
            remedy="run again; where it happens again, give the executors more memory",
        )
    if any(it in text for it in _UNREADABLE):
        named = next((batch for batch in batches if batch.folder in text), batches[0])
        return _damaged(record, named, text.strip().splitlines()[0][:300])
    return InternalError(f"the distribution's Spark job failed: {text.strip()[:2000]}")


def _damaged(record: PublicationRecord, batch: Batch, problem: str) -> ConfigurationError:
    problem = " ".join(problem.split()).rstrip(".")
    return ConfigurationError(
        f"store: batch {batch.folder} cannot be read: {problem}. It holds transactions "
        f"{batch.first_xact_seqno.hex()} to {batch.last_xact_seqno.hex()}, and nothing after them is delivered",
        remedy=f"restore {folder_path(record, batch.folder)} from a backup of the store; where there is none, "
        "initialise the subscriptions anew",
        xact_seqno=batch.first_xact_seqno.hex(),
    )
