"""Messages of ours in a binary log: rows of the table `tranrepl.message`, which only our role may write.

Each is inserted and removed again in one transaction: the log has its INSERT, which alone counts, and the table stays
small. The rows that stay say which publications of the server have been set up.
"""

from __future__ import annotations

from contextlib import suppress

import pymysql

from tranrepl.errors import ConfigurationError, MissingRightError, ReplicationError
from tranrepl.model.article import ArticleNames, PublishedColumn, RegisteredArticle
from tranrepl.model.commands import NO_ARTICLE_ID, Method, Propagation
from tranrepl.model.names import TableName
from tranrepl.model.table_definition import TableDefinition
from tranrepl.mysql.session import Session, account, error_number, error_text, translate, translated_errors
from tranrepl.publisher.messages import MessageKind
from tranrepl.publisher.mysql.column_types import declared
from tranrepl.publisher.publisher import Removal, RemovalStep
from tranrepl.remedies import RUN_SETUP

MESSAGES = TableName("tranrepl", "message")
PUBLICATION = "tranrepl.publication"
"""The kind of a row that stays."""
_COLUMNS = {
    "id": "bigint unsigned",
    "publication": "varchar(200)",
    "kind": "varchar(20)",
    "written": "bigint",
    "content": "mediumtext",
}
"""`written`: µs since 1970 UTC. The log itself has whole seconds."""
_CREATE = (
    "CREATE DATABASE IF NOT EXISTS tranrepl",
    (
        "CREATE TABLE IF NOT EXISTS tranrepl.message (id bigint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY, "
        "publication varchar(200) NOT NULL, kind varchar(20) NOT NULL, written bigint NOT NULL, "
        "content mediumtext NOT NULL) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
    ),
)
_INSERT = (
    "INSERT INTO tranrepl.message (publication, kind, written, content) "
    "SELECT %s, %s, CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED), %s FROM DUAL"
)
_RIGHTS = "GRANT SELECT, INSERT, DELETE, CREATE, DROP ON tranrepl.* TO"
_NO_TABLE = (1049, 1146)
_NO_RIGHT = (1044, 1142, 1143, 1227)
_READ_ONLY = (1290, 1836)
_MOST_OF_PACKET = 3
"""A message may take one part in so many of the longest statement: a quote in it is written twice."""


def message_article() -> RegisteredArticle:
    """Return the table as an article: its rows are read as those of any other."""
    nothing = Propagation(Method.NONE)
    columns = tuple(
        PublishedColumn(
            name=name, ordinal=ordinal, type_oid=0, type_modifier=-1, type_name=declared(spelling).type_name or ""
        )
        for ordinal, (name, spelling) in enumerate(_COLUMNS.items(), start=1)
    )
    return RegisteredArticle(
        article_id=NO_ARTICLE_ID,
        source=MESSAGES,
        destination=MESSAGES,
        source_object_id=0,
        columns=columns,
        ins_cmd=nothing,
        upd_cmd=nothing,
        del_cmd=nothing,
        source_definition=TableDefinition(
            name=MESSAGES, replica_identity="full", persistence="permanent", columns=(), unique=()
        ),
        file_names=ArticleNames(source=MESSAGES, columns=None, filter=None, lob_columns=()),
    )


class MessageTable:
    """The table in a session, for one publication: `publication` is a name that no other of the server has."""

    def __init__(self, session: Session, where: str, publication: str) -> None:
        self._session = session
        self._where = where
        self.publication = publication

    def set_up(self) -> list[str]:
        """Make the table, and note the publication in it; what was done, in words. Nothing is done where our role may
        not: no message can be written then, and `warning` says so."""
        refused = self._refused()
        if refused is not None and error_number(refused) not in _NO_TABLE:
            return []
        done = []
        try:
            if refused is not None:
                for statement in _CREATE:
                    self._session.execute(statement)
                done.append("created table tranrepl.message, by whose rows messages come into the log")
            if self.publication not in self._publications():
                self._session.execute(_INSERT, [self.publication, PUBLICATION, ""])
                done.append(f"noted publication {self.publication} in table tranrepl.message")
        except pymysql.err.Error as error:
            raise self._translated(error) from error
        return done

    def warning(self) -> str | None:
        """Say why our role may write no messages; None where it may, or setup has not made the table yet."""
        error = self._refused()
        if error is None or error_number(error) in _NO_TABLE:
            return None
        return (
            f"{self._where}: tracer tokens, scripts and changed definitions of articles have no way into the log: "
            f"{error_text(error)}. {self._way_on(error)}"
        )

    def write(self, kind: MessageKind, text: str) -> None:
        """Write a message in ASCII into the log, in a transaction of its own. Raises ConfigurationError where there is
        no table, MissingRightError where our role may not write it."""
        with translated_errors(self._where):
            ((most,),) = self._session.execute("SELECT @@max_allowed_packet")
        if len(text) > int(most) // _MOST_OF_PACKET:
            raise ConfigurationError(
                f"{self._where}: a message of {len(text):,} bytes is too long for max_allowed_packet, which is "
                f"{most:,}",
                remedy=f"SET GLOBAL max_allowed_packet = {1 << (_MOST_OF_PACKET * len(text)).bit_length()}",
            )
        try:
            self._session.execute("START TRANSACTION")
            self._session.execute(_INSERT, [self.publication, kind.value, text])
            self._session.execute("DELETE FROM tranrepl.message WHERE id = LAST_INSERT_ID()")
            self._session.execute("COMMIT")
        except pymysql.err.Error as error:
            with suppress(pymysql.err.Error):
                self._session.execute("ROLLBACK")
            raise self._translated(error) from error

    def left_to_make(self) -> list[str]:
        """Return the statements by which who may makes what our role may not."""
        refused = self._refused()
        has_way = refused is None or error_number(refused) not in _NO_RIGHT
        return [] if has_way else [*_CREATE, self._grant()]

    def removal(self) -> Removal:
        """Return what removes the publication from the table, and the table with the last one."""
        refused = self._refused()
        if refused is not None:
            is_there = error_number(refused) not in _NO_TABLE
            return Removal((), (f"table tranrepl.message, if it is there: {error_text(refused)}",) if is_there else ())
        step = self._removal()
        return Removal((), ()) if step is None else Removal((step,), ())

    def _removal(self) -> RemovalStep | None:
        with translated_errors(self._where):
            known = self._publications()
            if self.publication not in known:
                return None
            others = self._session.execute(
                "SELECT 1 FROM information_schema.tables WHERE table_schema = 'tranrepl' AND table_name <> 'message'"
            )
        if known != [self.publication]:
            # As sessions of ours read a text: without backslashes.
            name = "'" + self.publication.replace("'", "''") + "'"
            statement = f"DELETE FROM tranrepl.message WHERE publication = {name}"  # noqa: S608 - quoted
            return RemovalStep(f"publication {self.publication} in table tranrepl.message", statement)
        if others:
            return RemovalStep("table tranrepl.message", "DROP TABLE tranrepl.message")
        return RemovalStep("database tranrepl, with table message", "DROP DATABASE tranrepl")

    def _publications(self) -> list[str]:
        rows = self._session.execute(
            "SELECT DISTINCT publication FROM tranrepl.message WHERE kind = %s ORDER BY publication", [PUBLICATION]
        )
        return [name for (name,) in rows]

    def _refused(self) -> pymysql.err.Error | None:
        """Return why no message could be written, for want of the table or of a right; None where one could."""
        try:
            self._session.execute(f"{_INSERT} WHERE FALSE", ["", "", ""])
        except pymysql.err.Error as error:
            if error_number(error) in (*_NO_TABLE, *_NO_RIGHT, *_READ_ONLY):
                return error
            raise translate(self._where, error) from error
        return None

    def _grant(self) -> str:
        return f"{_RIGHTS} {account(self._session)}"

    def _way_on(self, error: pymysql.err.Error) -> str:
        if error_number(error) in _READ_ONLY:
            return "Publish from the server where changes are made, if you need them"
        return f"{self._grant()}; then {RUN_SETUP}"

    def _translated(self, error: pymysql.err.Error) -> ReplicationError:
        message = f"{self._where}: no message can be written into the log: {error_text(error)}"
        number = error_number(error)
        if number in _NO_TABLE:
            return ConfigurationError(message, remedy=RUN_SETUP)
        if number in (*_NO_RIGHT, *_READ_ONLY):
            return MissingRightError(message, remedy=self._way_on(error))
        return translate(self._where, error)
