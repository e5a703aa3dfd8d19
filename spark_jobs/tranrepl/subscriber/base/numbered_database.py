"""A database whose errors have numbers, and where a procedure can end the transaction that it is called in."""

from __future__ import annotations

from sqlalchemy.exc import DBAPIError

from tranrepl.connections import Connection
from tranrepl.errors import CLASS_OF_KIND, ConfigurationError, ReplicationError
from tranrepl.subscriber.base.database import SqlDatabase

NO_TRANSACTION_OF_ITS_OWN = (
    "a procedure that applies commands holds no COMMIT, no ROLLBACK and no DDL: the commands of a commit batch and the "
    "watermark are committed together"
)


class NumberedDatabase(SqlDatabase):
    """A database whose errors have numbers, by which their class is known: drivers call everything operational that
    they do not know, a procedure's own errors among it."""

    def error_class(self, error: DBAPIError) -> type[ReplicationError]:
        return CLASS_OF_KIND[self.error_codes.kind(self.number(error))]

    def refused(self, connection: Connection, error: DBAPIError) -> ReplicationError:
        if self.error_class(error) is not ConfigurationError:
            return super().refused(connection, error)
        return ConfigurationError(
            f"connection {connection}: {self.text(error.orig or error)}",
            **self.error_codes.numbered(self.number(error)),
            remedy="check login, password and database of this connection",
        )


def procedure_ended_transaction(code: str) -> ConfigurationError:
    return ConfigurationError(
        "a procedure ended the transaction by itself", database_code=code, remedy=NO_TRANSACTION_OF_ITS_OWN
    )
