"""What a refused command says and leaves as it was: its errors, the databases' objects, and no password anywhere."""

from __future__ import annotations

from urllib.parse import quote

from support.databases import Databases
from support.shell import Outcome
from support.site import Rows, execute
from tranrepl.connections import Connection

PASSWORD = "hush/D0nt:te11@me%41 ?#"  # noqa: S105
"""Every part of it must be looked for: quoting could hide the whole."""
WRONG_PASSWORD = "wr0ng/S3same@x%"  # noqa: S105
_SECRETS = [
    PASSWORD,
    quote(PASSWORD),
    quote(PASSWORD, safe=""),
    "D0nt",
    "te11",
    "S3same",
    quote(WRONG_PASSWORD, safe=""),
]

STATE = """
    SELECT 'relation', c.oid::regclass::text, c.relreplident::text FROM pg_class c
     WHERE c.relnamespace::regnamespace::text NOT LIKE 'pg\\_%' AND c.relnamespace <> 'information_schema'::regnamespace
    UNION ALL SELECT 'schema', nspname, '' FROM pg_namespace WHERE nspname NOT LIKE 'pg\\_%'
    UNION ALL SELECT 'routine', oid::regprocedure::text, md5(prosrc) FROM pg_proc
               WHERE pronamespace = 'public'::regnamespace
    UNION ALL SELECT 'publication', pubname, '' FROM pg_publication
    UNION ALL SELECT 'slot', slot_name, confirmed_flush_lsn::text FROM pg_replication_slots
               WHERE database = current_database()
    ORDER BY 1, 2
"""
"""Everything in a database that a setup could make or change."""


def state_of(databases: Databases) -> list[Rows]:
    """Return what `STATE` finds at each of the three places."""
    return [execute(it, STATE) for it in (databases.publisher, databases.subscriber, databases.distribution)]


def assert_refused(outcome: Outcome, *said: str) -> None:
    """Compare the errors with `said`, each of which is part of one, and see that there is nothing else."""
    assert outcome.status == 1, outcome
    assert outcome.out == ""
    assert len(outcome.errors) == len(said), outcome.err
    for error, part in zip(outcome.errors, said, strict=True):
        assert part in error
    assert_kept_secret(outcome)


def assert_kept_secret(outcome: Outcome, *connections: Connection) -> None:
    """See that neither side of the outcome has a traceback, or a password of ours or of these connections."""
    passwords = [str(it.password) for it in connections]
    text = outcome.out + outcome.err
    assert "Traceback" not in text
    assert [secret for secret in (*_SECRETS, *passwords, *map(quote, passwords)) if secret in text] == []
