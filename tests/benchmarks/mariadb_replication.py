"""MariaDB's own replication: a primary with a row-based binary log, and a replica that drains it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.workloads import TRANSACTION_ROWS
from support.mariadb import MariaDbServer

DATABASE = "purchasing"
SERVER_OPTIONS = ("--innodb-buffer-pool-size=512M",)
_MOST_SECONDS = 900
_NUMBERS = f"(SELECT @first + seq AS n FROM seq_0_to_{TRANSACTION_ROWS - 1}) AS numbers"
_LAST = f"@first + {TRANSACTION_ROWS - 1}"
# As `benchmarks.workloads` has them for PostgreSQL.
CHANGES = {
    "insert": f"""INSERT INTO vendor SELECT n, concat('ACCT', n), concat('Name of vendor ', n), n % 5 + 1, n % 2 = 0,
        true, CASE WHEN n % 3 = 0 THEN concat('http://example.com/vendor/', n) END,
        timestamp('2026-01-01') + INTERVAL n SECOND FROM {_NUMBERS}""",
    "update": f"""UPDATE vendor SET name = concat(name, '.'), credit_rating = credit_rating % 5 + 1
        WHERE vendor_id BETWEEN @first AND {_LAST}""",
    "delete": f"DELETE FROM vendor WHERE vendor_id BETWEEN @first AND {_LAST}",
}


class MariaDbReplication:
    """The replica applies with default settings, and only while it drains."""

    def __init__(self, primary: MariaDbServer, replica: MariaDbServer) -> None:
        self.replica = replica
        self._primary = primary

    def begin(self, create_table: str) -> None:
        """Create the table at both ends, without rows; the replica begins after that."""
        source = self._primary.connection(DATABASE)
        for server in (self._primary, self.replica):
            server.execute(f"DROP DATABASE IF EXISTS {DATABASE}", f"CREATE DATABASE {DATABASE}")
            server.execute(create_table, database=DATABASE)
        position = self._position()
        self.replica.execute(
            f"SET GLOBAL gtid_slave_pos = '{position}'",
            f"CHANGE MASTER TO MASTER_HOST = '{source.host}', MASTER_PORT = {source.port}, "
            f"MASTER_USER = '{source.login}', MASTER_PASSWORD = '{source.password}', MASTER_USE_GTID = slave_pos",
        )

    def build(self, change: str, rows: int) -> None:
        """Build a backlog of one of `CHANGES`."""
        self._primary.execute(
            f"""BEGIN NOT ATOMIC
                SET @first = 1;
                WHILE @first <= {rows} DO
                    START TRANSACTION;
                    {CHANGES[change]};
                    COMMIT;
                    SET @first = @first + {TRANSACTION_ROWS};
                END WHILE;
            END""",
            database=DATABASE,
        )

    def drain(self) -> float:
        """Return the seconds until the replica has what the primary has."""
        position, started = self._position(), time.perf_counter()
        self.replica.execute("START SLAVE")
        ((outcome,),) = self.replica.execute(f"SELECT MASTER_GTID_WAIT('{position}', {_MOST_SECONDS})")
        seconds = time.perf_counter() - started
        self.replica.execute("STOP SLAVE")
        if outcome != 0:
            raise TimeoutError(f"MariaDB's replica did not drain the backlog in {_MOST_SECONDS} s")
        return seconds

    def _position(self) -> str:
        return str(self._primary.execute("SELECT @@gtid_binlog_pos")[0][0])


@contextmanager
def mariadb_replication(home: Path) -> Iterator[MariaDbReplication]:
    """Yield a primary and its replica."""
    log = ("--log-bin=binlog", "--binlog-format=ROW", "--server-id=1")
    with ExitStack() as stack:
        primary = stack.enter_context(MariaDbServer(home / "primary", (*SERVER_OPTIONS, *log)))
        replica = stack.enter_context(MariaDbServer(home / "replica", (*SERVER_OPTIONS, "--server-id=2")))
        yield MariaDbReplication(primary, replica)
