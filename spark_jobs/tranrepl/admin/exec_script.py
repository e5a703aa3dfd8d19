"""`tranrepl exec FILE`: a script that runs at each PostgreSQL Subscriber at its place among the changes.

Source: `sp_addscriptexec`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tranrepl.errors import ConfigurationError
from tranrepl.model.script import MOST_SCRIPT_BYTES, Script
from tranrepl.topology import Topology


@dataclass(frozen=True, slots=True)
class WrittenScript:
    """A script that is in the Publisher's log, and the subscriptions that will run it and will not."""

    name: str
    runs_at: tuple[str, ...]
    not_run_at: tuple[str, ...]
    """With the Subscriber's database, in words."""


def read_script(file: Path) -> str:
    """Return a script's text. Raises ConfigurationError where the file is not one in UTF-8, empty, or too long."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"--sql: {file} cannot be read: {error.strerror}") from error
    if len(content) > MOST_SCRIPT_BYTES:
        raise ConfigurationError(
            f"--sql: {file} has {len(content):,} bytes; the Publisher's log takes scripts of at most "
            f"{MOST_SCRIPT_BYTES:,}",
            remedy="divide it into several scripts",
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            f"--sql: {file} is not UTF-8: byte {error.start + 1:,}", remedy="save it in UTF-8"
        ) from error
    if not text.strip():
        raise ConfigurationError(f"--sql: {file} is empty")
    if "\0" in text:
        raise ConfigurationError(f"--sql: {file} holds a character NUL, which no text of SQL has")
    return text


def exec_script(topology: Topology, file: Path) -> WrittenScript:
    """Write a script into the Publisher's log, in a transaction of its own.

    Raises ConfigurationError where the publication is not set up, or the script cannot run at its place.
    """
    text = read_script(file)
    dialects = {it.name: topology.dialect(it.name) for it in topology.publication.subscriptions}
    with topology.distributor() as database, topology.publisher("tranrepl exec") as publisher:
        record = database.publications.get(topology.publication.publication)
        publisher.require_kept()
        for it in dialects.values():
            it.refuse_script(text)
        script = Script(publication=publisher.name, name=file.name, sql=text)
        # First: the log reader ignores a script that is not written down.
        database.scripts.add(record, script.digest)
        try:
            publisher.write_script(script)
        except ConfigurationError:
            database.scripts.remove(record, script.digest)
            raise
    known = {name: it.capabilities for name, it in dialects.items()}
    return WrittenScript(
        file.name,
        tuple(name for name, it in known.items() if it.scripts),
        tuple(f"{name} ({it.title})" for name, it in known.items() if not it.scripts),
    )
