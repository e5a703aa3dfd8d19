"""What a server must be set to so that its log can be published, and the rights that reading it takes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import timedelta

import pymysql

from tranrepl.errors import ConfigurationError, MissingRightError, ReplicationError
from tranrepl.mysql.session import Session, translated_errors
from tranrepl.publisher.mysql.server import END_OF_LOG, RUN, version_of
from tranrepl.publisher.mysql.table_maps import Flavor

_SETTINGS: Mapping[str, tuple[str, str]] = {
    "binlog_format": ("ROW", "SET GLOBAL binlog_format = ROW"),
    "binlog_row_image": ("FULL", "SET GLOBAL binlog_row_image = FULL"),
    "binlog_row_metadata": ("FULL", "SET GLOBAL binlog_row_metadata = FULL"),
    # Of MySQL alone.
    "binlog_row_value_options": ("", "SET GLOBAL binlog_row_value_options = ''"),
}
_LARGEST_LOG = "max_binlog_total_size"
"""A setting of MariaDB from 11.4 on."""
_KEEPING = {
    Flavor.MARIADB: "SET GLOBAL binlog_expire_logs_seconds = {}, and in the server's configuration",
    Flavor.MYSQL: "SET PERSIST binlog_expire_logs_seconds = {}",
}
_DURABLE = ("sync_binlog", "innodb_flush_log_at_trx_commit")
_APPLIED = {Flavor.MARIADB: "log_slave_updates", Flavor.MYSQL: "log_replica_updates"}
_REPLICAS = {Flavor.MARIADB: "SHOW ALL SLAVES STATUS", Flavor.MYSQL: "SHOW REPLICA STATUS"}
READING = {
    Flavor.MARIADB: "REPLICATION SLAVE, BINLOG MONITOR",
    Flavor.MYSQL: "REPLICATION SLAVE, REPLICATION CLIENT",
}
_RIGHTS: Mapping[Flavor, Mapping[str, str]] = {
    Flavor.MARIADB: {
        "SELECT 1 FROM information_schema.innodb_sys_foreign LIMIT 0": "PROCESS ON *.* TO {}: foreign keys are seen by "
        "it"
    },
    Flavor.MYSQL: {
        "SELECT local FROM performance_schema.log_status": "BACKUP_ADMIN ON *.* TO {0}; GRANT SELECT ON "
        "performance_schema.log_status TO {0}: a snapshot's place in the log is seen by it",
    },
}
"""What must be possible, and what is granted where it is not."""


def server_warnings(session: Session, where: str, flavor: Flavor) -> Iterator[str]:
    """Yield what is allowed, but was never tested, or may lose what a crash interrupts."""
    ((version,),) = session.execute("SELECT VERSION()")
    if version_of(version) not in RUN[flavor]:
        run = " and ".join(".".join(map(str, it)) for it in RUN[flavor])
        yield f"{where}: the server is {version}, with which this was never run: it was with {run}"
    for name, value in _settings(session, *_DURABLE).items():
        if value != "1":
            yield (
                f"{where}: {name} is {value}: after a crash the server may lack transactions that were read from its "
                f"log, or its log may lack some of its own. SET GLOBAL {name} = 1, and in the server's configuration"
            )

    size = _settings(session, _LARGEST_LOG).get(_LARGEST_LOG, "0")
    if size != "0":
        yield (
            f"{where}: {_LARGEST_LOG} is {size}: where its log is larger, the server removes the oldest files, read or "
            f"not. SET GLOBAL {_LARGEST_LOG} = 0 keeps them, or make it more than is written within max_distretention"
        )


def kept_for(session: Session) -> timedelta:
    """Return after what time the server removes a file of its log; nothing where it does not."""
    found = _settings(session, "binlog_expire_logs_seconds", "binlog_expire_logs_auto_purge")
    is_removed = found.get("binlog_expire_logs_auto_purge") != "OFF"
    return timedelta(seconds=int(found["binlog_expire_logs_seconds"]) if is_removed else 0)


def retention_problems(session: Session, where: str, flavor: Flavor, wanted: timedelta) -> Iterator[ConfigurationError]:
    """Yield a problem where the server removes its log sooner than commands are kept for a Subscriber."""
    limit = kept_for(session)
    if limit and limit < wanted:
        seconds = math.ceil(wanted / timedelta(seconds=1))
        yield ConfigurationError(
            f"{where}: binlog_expire_logs_seconds is {limit // timedelta(seconds=1)}: the server removes its log after "
            f"{limit / timedelta(hours=1):g} hours, read or not, and Subscribers are waited for "
            f"{wanted / timedelta(hours=1):g} (max_distretention)",
            remedy=_KEEPING[flavor].format(seconds) + "; 0 keeps it until it is purged. Or lower max_distretention",
        )


def server_problems(session: Session, where: str, flavor: Flavor) -> Iterator[ReplicationError]:
    """Yield the settings with which the log lacks what is needed, each with its remedy."""
    if _leaves_out_others_changes(session, flavor):
        yield ConfigurationError(
            f"{where}: {_APPLIED[flavor]} is OFF: what this server applies as a replica or a cluster's node is not in "
            "its binary log",
            remedy=f"set {_APPLIED[flavor]} = ON in the server's configuration, and start it again; or publish from "
            "the server where the changes are made",
        )
    ((_, _, only, without, *_),) = session.execute(END_OF_LOG[flavor])
    if only or without:
        yield ConfigurationError(
            f"{where}: the binary log leaves databases out (binlog_do_db, binlog_ignore_db)",
            remedy="remove both from the server's configuration, and start it again",
        )
    for name, value in _settings(session, *_SETTINGS).items():
        wanted, remedy = _SETTINGS[name]
        if value.upper() != wanted:
            yield ConfigurationError(
                f"{where}: {name} is {value}, and must be {wanted or 'empty'}",
                remedy=f"{remedy}, and in the server's configuration; open sessions keep theirs: connect them again",
            )


def _leaves_out_others_changes(session: Session, flavor: Flavor) -> bool:
    """Return whether the server applies changes of others, and does not log them."""
    settings = _settings(session, _APPLIED[flavor], "gtid_slave_pos", "wsrep_on")
    if settings.get(_APPLIED[flavor]) == "ON":
        return False
    if settings.get("gtid_slave_pos") or settings.get("wsrep_on") == "ON":
        return True
    # It may need a right of its own; a replica of MariaDB that has applied anything has a place in gtid_slave_pos.
    with suppress(pymysql.err.Error):
        return bool(session.execute(_REPLICAS[flavor]))
    return False


def right_problems(session: Session, where: str, flavor: Flavor, user: str) -> Iterator[MissingRightError]:
    """Yield the rights that our login, `user` in SQL, lacks beside those that reading the log takes."""
    for statement, grant in _RIGHTS[flavor].items():
        try:
            with translated_errors(where):
                session.execute(statement)
        except ConfigurationError as error:
            yield MissingRightError(error.message, remedy=f"GRANT {grant.format(user)}")


def _settings(session: Session, *names: str) -> dict[str, str]:
    """Return those that the server has."""
    wanted = ", ".join("%s" for _ in names)
    return dict(session.execute(f"SHOW GLOBAL VARIABLES WHERE variable_name IN ({wanted})", names))
