"""A publication's notifiers, tried. They are Airflow's, so a process that has Airflow tries them: `tranrepl_airflow`,
where it is installed beside us."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from pydantic import BaseModel, TypeAdapter, ValidationError

from tranrepl.admin.airflow_pools import airflow_command
from tranrepl.errors import ConfigurationError
from tranrepl.settings.publication import Publication
from tranrepl.spark.spark_submit import write_private

_SECONDS = 300
_PACKAGE = "tranrepl_airflow"


class AlertTrial(BaseModel):
    """What became of one notifier."""

    notifier: str
    said: str
    """What was tried, or why it fails."""
    failed: bool

    def __str__(self) -> str:
        return f"alert notifier {self.notifier}: {self.said}"


TRIALS = TypeAdapter(list[AlertTrial])


def try_alerts(publication: Publication, *, send: bool) -> list[AlertTrial]:
    """Try each notifier, without an alert where it can be asked so; with `send`, send one test alert through each.

    Connections are this environment's, and Airflow's where one is set up here. Raises ConfigurationError where no
    Airflow is installed here.
    """
    if not publication.alerts:
        return []
    if find_spec(_PACKAGE) is None or find_spec("airflow") is None:
        raise ConfigurationError(
            "alert notifiers were not tried: Airflow is not installed here",
            remedy="where tasks run: `tranrepl alert FILE` tries them, `tranrepl alert FILE --test` sends an alert",
        )
    with tempfile.TemporaryDirectory(prefix="tranrepl-") as folder, _airflow_environment(folder) as environment:
        asked, answer = Path(folder, "publication.json"), Path(folder, "trials.json")
        write_private(asked, publication.model_dump_json())
        command = [sys.executable, "-m", f"{_PACKAGE}.alert_trials", str(asked), str(answer)]
        try:
            subprocess.run(
                [*command, "--send"] if send else command,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=True,
                timeout=_SECONDS,
            )
            return TRIALS.validate_json(answer.read_bytes())
        except (OSError, subprocess.SubprocessError, ValidationError) as error:
            raise ConfigurationError(
                f"alert notifiers were not tried: Airflow does not start here: {type(error).__name__}",
                remedy="`airflow config list` says what is wrong with it",
            ) from None


@contextmanager
def _airflow_environment(folder: str) -> Iterator[dict[str, str]]:
    """Yield the variables with which Airflow reads its own connections, too, where one is set up; it makes no home
    where there is none."""
    if airflow_command() is not None:
        yield {**os.environ, "_AIRFLOW_PROCESS_CONTEXT": "server"}
    else:
        yield {**os.environ, "AIRFLOW_HOME": folder}
