"""Which process is which, of continuous agents."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from benchmarks.continuous_site import ContinuousSite
from benchmarks.process_costs import descendants
from support.site import execute

LOG_READER, SENDER, OTHER_WORKERS = "log reader's worker", "log reader's sender", "other workers"
_ROLES = {b"org.apache.spark.deploy.SparkSubmit": "JVM", b"pyspark.daemon": OTHER_WORKERS, b"spark_jobs": "driver"}
_SENDER = (
    "SELECT pid, client_port FROM pg_stat_replication "
    "WHERE application_name = 'tranrepl log reader' ORDER BY backend_start DESC LIMIT 1"
)
_LOCAL_ADDRESS, _INODE = 1, 9


def processes_by_role(site: ContinuousSite) -> dict[str, set[int]]:
    """Return the agents' processes, and the Publisher's that sends its log to them, by what they are.

    The log reader's worker is the one that has the sender's connection, while it follows the log.
    """
    processes = {below for some in site.agents.processes().values() for it in some for below in (it, *descendants(it))}
    found: dict[str, set[int]] = {}
    for it in processes:
        found.setdefault(_role(it), set()).add(it)
    for sender, port in execute(site.publisher, _SENDER):
        found[SENDER] = {int(sender)}
        worker = {it for it in found.get(OTHER_WORKERS, ()) if _has_connection(it, int(port))}
        if worker:
            found[LOG_READER] = worker
            found[OTHER_WORKERS] -= worker
    return found


def _role(process: int) -> str:
    with suppress(OSError):
        command = Path(f"/proc/{process}/cmdline").read_bytes()
        return next((role for words, role in _ROLES.items() if words in command), "shell")
    return "ended"


def _has_connection(process: int, port: int) -> bool:
    inodes = {f"socket:[{it}]" for it in _inodes(port)}
    return any(it in inodes for it in _open_files(Path(f"/proc/{process}/fd")))


def _open_files(folder: Path) -> Iterator[str]:
    with suppress(OSError):
        for it in folder.iterdir():
            with suppress(OSError):
                yield str(it.readlink())


def _inodes(port: int) -> Iterable[str]:
    """Return the sockets whose own port this is (source: proc(5))."""
    for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
        fields = line.split()
        address, _, own = fields[_LOCAL_ADDRESS].partition(":")
        if int(own, 16) == port and socket.inet_ntoa(bytes.fromhex(address)[::-1]).startswith("127."):
            yield fields[_INODE]
