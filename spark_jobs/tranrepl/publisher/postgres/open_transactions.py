"""The transaction that has been open for longest: the log since its beginning is kept for whoever decodes it.

Any transaction that has a number (`xid`) counts, of whatever database of the server, and one that is prepared most of
all: nobody's session ends it.
"""

from __future__ import annotations

from tranrepl.postgres.session import Session, translated_errors
from tranrepl.publisher.publisher import OpenTransaction

# Without pg_read_all_stats, the times of other roles' transactions are NULL.
_OLDEST = """
SELECT seconds, who FROM (
    SELECT extract(epoch FROM clock_timestamp() - xact_start), format('session %s (%s)', pid, concat_ws(', ',
           'role ' || usename, 'database ' || datname, nullif(application_name, '')))
      FROM pg_catalog.pg_stat_activity WHERE backend_xid IS NOT NULL AND pid <> pg_catalog.pg_backend_pid()
    UNION ALL
    SELECT extract(epoch FROM clock_timestamp() - prepared),
           format('prepared transaction %L (role %s, database %s)', gid, owner, database)
      FROM pg_catalog.pg_prepared_xacts
) AS open (seconds, who)
WHERE seconds IS NOT NULL ORDER BY seconds DESC LIMIT 1
"""


def oldest_transaction(session: Session) -> OpenTransaction | None:
    """Return the transaction that has been open for longest, as far as our role sees its time; None where there is
    none."""
    with translated_errors(f"Publisher {session.info.dbname}"):
        row = session.execute(_OLDEST).fetchone()
    return None if row is None else OpenTransaction(float(row[0]), str(row[1]))
