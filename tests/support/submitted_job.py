"""A job submitted by the `tranrepl` command, which can be killed with all that it has started."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

import yaml

from support.processes import kill, name_of, process_ids, session_of
from support.site import Site

PATIENCE_SECONDS = 300.0
POLL_SECONDS = 0.03


class SubmittedJob:
    """`tranrepl VERB FILE` as a person runs it; all processes that it starts are in one session of their own."""

    def __init__(
        self, verb: str, site: Site, folder: Path, environment: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        folder.mkdir()
        file = folder / "purchasing.yaml"
        file.write_text(yaml.safe_dump(site.publication.model_dump(mode="json")), encoding="utf-8")
        self._log = folder / "job.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(Path(sys.executable).parent / "tranrepl"), verb, str(file), "--master", "local[2]"],
                env={**os.environ, **site.databases.environment, **_leaving_nothing_outside(folder), **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def runs(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """Send SIGKILL to the driver and to everything around it, at once."""
        while running := self._processes():
            for pid in running:
                kill(pid)
            self._process.poll()
            time.sleep(POLL_SECONDS)
        self._process.wait()

    def kill_driver(self) -> None:
        """Send SIGKILL to the driver's JVM alone: its Python processes find out by themselves."""
        drivers = [pid for pid in self._processes() if name_of(pid) == "java"]
        assert len(drivers) == 1
        kill(drivers[0])

    def end(self) -> tuple[int, str]:
        """Return exit status and output of a job that ends by itself."""
        status = self._process.wait(PATIENCE_SECONDS)
        return status, self._log.read_text(encoding="utf-8")

    def _processes(self) -> list[int]:
        """Return the living processes of the job's session."""
        return [pid for pid in process_ids() if session_of(pid) == self._process.pid]


def _leaving_nothing_outside(folder: Path) -> dict[str, str]:
    """Return variables that say where a job that gets no chance to clean up puts its temporary files."""
    return {
        "TMPDIR": str(folder),
        "SPARK_LOCAL_DIRS": str(folder),
        "SPARK_SUBMIT_OPTS": f"-Djava.io.tmpdir={folder}",
    }
