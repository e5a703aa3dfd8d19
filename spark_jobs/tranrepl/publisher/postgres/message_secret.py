"""The secret that messages of ours in a log are signed with: how it is changed, read and used, and who may own it.

It is a table of one row in a schema of ours at the Publisher, which `announce.sql` makes. Its owner reads it, and the
log reader's role where it is given `SELECT`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256

from psycopg import sql
from psycopg.errors import InsufficientPrivilege, UndefinedTable

from tranrepl.errors import ConfigurationError, JobRightError
from tranrepl.postgres.rights import lacking_right, our_role, quoted_role
from tranrepl.postgres.session import Session, translated_errors
from tranrepl.publisher.messages import MessageKind

SCHEMA = "tranrepl"
"""The schema of what setup makes at a Publisher."""
SECRET_TABLE = "message_secret"  # noqa: S105 — a table's name
XIDS = 1 << 32
"""So many transactions have ids of their own in the log, which has 32 bits of them."""
_SECRET = sql.Identifier(SCHEMA, SECRET_TABLE)
# UUIDs of version 4 are the only strong random bytes that every server has without an extension.
_NEW_KEY = sql.SQL(" || ").join([sql.SQL("pg_catalog.uuid_send(pg_catalog.gen_random_uuid())")] * 4)
# What a transaction reads that began before this commits is the former secret, which has no end until those have ended.
_CHANGE_SECRET = sql.SQL(
    "UPDATE {} SET former_inner_key = inner_key, former_outer_key = outer_key, inner_key = {}, outer_key = {}, "
    "replaced_at = NULL, replaced_lsn = NULL WHERE former_inner_key IS NULL OR replaced_at IS NOT NULL"
).format(_SECRET, _NEW_KEY, _NEW_KEY)
_END_FORMER = sql.SQL(
    "UPDATE {} SET replaced_at = pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot()), "
    "replaced_lsn = pg_catalog.pg_current_wal_insert_lsn() WHERE former_inner_key IS NOT NULL AND replaced_at IS NULL"
).format(_SECRET)
_NOT_ENDED = sql.SQL("SELECT FROM {} WHERE former_inner_key IS NOT NULL AND replaced_at IS NULL").format(_SECRET)
# What the former secret has signed verifies until it is read; what the one before has, does not any more.
_UNREAD = sql.SQL(
    "SELECT slot_name FROM pg_catalog.pg_replication_slots JOIN {} ON confirmed_flush_lsn < replaced_lsn "
    "WHERE database = current_database() AND pg_catalog.starts_with(slot_name::text, 'tranrepl_') ORDER BY 1 LIMIT 1"
).format(_SECRET)
# Every login may see these columns. What PostgreSQL itself runs has no user, and signs nothing.
_BEGUN = """
SELECT l.virtualxid, pg_catalog.format('the transaction of process %s', a.pid),
       pg_catalog.format('SELECT pg_terminate_backend(%s)', a.pid)
  FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
 WHERE l.locktype = 'virtualxid' AND l.virtualxid = l.virtualtransaction AND a.pid <> pg_catalog.pg_backend_pid()
   AND a.datname = current_database() AND a.usesysid IS NOT NULL
   AND (a.backend_xid IS NOT NULL OR a.backend_xmin IS NOT NULL)
UNION ALL
SELECT p.transaction::text, pg_catalog.format('prepared transaction %L', p.gid),
       pg_catalog.format('ROLLBACK PREPARED %L', p.gid)
  FROM pg_catalog.pg_prepared_xacts p WHERE p.database = current_database()
"""
_WAIT_SECONDS = 10.0
# A superuser and the database's owner may have all of it in any case. Our publication's owner ran setup, unless another
# login made a publication of that name before; no superuser takes the word of one for it.
_UNTRUSTED = """
SELECT it.what, r.rolname, it.mend
  FROM (SELECT 1, pg_catalog.format('schema %%I', n.nspname), n.nspowner,
               pg_catalog.format('ALTER SCHEMA %%I OWNER TO %%I', n.nspname, current_user)
          FROM pg_catalog.pg_namespace n WHERE n.nspname = %(schema)s
        UNION ALL
        SELECT 2, pg_catalog.format('table %%I.%%I', n.nspname, c.relname), c.relowner,
               pg_catalog.format('DROP TABLE %%I.%%I', n.nspname, c.relname)
          FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
         WHERE n.nspname = %(schema)s AND c.relname = %(table)s
        UNION ALL
        SELECT 3, 'function ' || p.oid::pg_catalog.regprocedure, p.proowner,
               pg_catalog.format('DROP FUNCTION %%s CASCADE', p.oid::pg_catalog.regprocedure)
          FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
         WHERE n.nspname = %(schema)s AND p.proname = ANY (%(functions)s)) it (place, what, owner, mend)
  JOIN pg_catalog.pg_roles r ON r.oid = it.owner
 WHERE NOT r.rolsuper AND r.rolname <> current_user
   AND NOT EXISTS (SELECT FROM pg_catalog.pg_publication p, pg_catalog.pg_roles m
                    WHERE p.pubname = %(publication)s AND p.pubowner = r.oid
                      AND m.rolname = current_user AND NOT m.rolsuper)
   AND r.oid <> (SELECT d.datdba FROM pg_catalog.pg_database d WHERE d.datname = current_database())
   AND NOT (SELECT NOT m.rolsuper AND pg_catalog.pg_has_role(r.oid, 'USAGE')
              FROM pg_catalog.pg_roles m WHERE m.rolname = current_user)
 ORDER BY it.place, it.what
"""
_OPEN = """
SELECT DISTINCT it.what, CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE a.grantee::pg_catalog.regrole::text END
  FROM (SELECT pg_catalog.format('TABLE %%I.%%I', n.nspname, c.relname), c.relacl, c.relowner,
               ARRAY['SELECT', 'UPDATE']
          FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
         WHERE n.nspname = %(schema)s AND c.relname = %(table)s
        UNION ALL
        SELECT 'FUNCTION ' || p.oid::pg_catalog.regprocedure,
               coalesce(p.proacl, pg_catalog.acldefault('f', p.proowner)), p.proowner,
               CASE WHEN p.oid::pg_catalog.regprocedure::text = %(announce)s THEN ARRAY['EXECUTE'] ELSE '{}' END
          FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
         WHERE n.nspname = %(schema)s AND p.proname = ANY (%(functions)s)) it (what, acl, owner, given)
       CROSS JOIN LATERAL pg_catalog.aclexplode(it.acl) a
 WHERE a.grantee <> it.owner AND (a.grantee = 0 OR a.privilege_type <> ALL (it.given)) ORDER BY 1, 2
"""
_SECRETS = sql.SQL("SELECT inner_key, outer_key, former_inner_key, former_outer_key, replaced_at::text FROM {}").format(
    _SECRET
)


@dataclass(frozen=True, slots=True)
class MessageSecret:
    """A secret, of two keys: of HMAC, with keys of a block each that are independent."""

    inner_key: bytes = field(repr=False)
    outer_key: bytes = field(repr=False)
    replaced_at: int | None = None
    """The first transaction that uses it no more, by its 64-bit id; None where it is in use, or may be."""

    def signature(self, kind: MessageKind, xid: int, text: bytes) -> bytes:
        """Return the signature of a text, in the server's encoding, in the transaction of this 32-bit id."""
        signed = b"%s %d %s" % (kind.value.encode(), xid, text)
        return sha256(self.outer_key + sha256(self.inner_key + signed).digest()).hexdigest().encode()

    def signs(self, xid: int) -> bool:
        """Return whether the transaction of this 32-bit id may have used it."""
        return self.replaced_at is None or whole_xid(xid, self.replaced_at) < self.replaced_at


def change_secret(session: Session, where: str) -> bool:
    """Sign from now on with another secret, and wait until no transaction uses the former one.

    What transactions of before have signed stays good, and nothing that later ones sign with the former one. Returns
    False where a change that was begun before was ended, and no other one made. Raises ConfigurationError where the log
    holds what was signed before the last change, and that is not read; and where a transaction of before does not end:
    called again, this waits for the end of that change, and makes no other one.
    """
    with session.transaction():
        # Two changes at once are one.
        session.execute("SET LOCAL lock_timeout = '10s'")
        session.execute(sql.SQL("LOCK TABLE {} IN EXCLUSIVE MODE").format(_SECRET))
        unread = session.execute(_UNREAD).fetchone()
        if unread is not None:
            raise ConfigurationError(
                f"{where}: the log of replication slot {unread[0]} is not read up to the last change of the secret: "
                "what was signed before would not be believed after another one",
                remedy="read it with `tranrepl log-reader FILE`, for the publication of that slot; then "
                "`tranrepl setup FILE --new-secret` again",
            )
        is_another = session.execute(_CHANGE_SECRET).rowcount == 1
    begun = session.execute(_BEGUN).fetchall()
    until = time.monotonic() + _WAIT_SECONDS
    while begun:
        if time.monotonic() > until:
            _, holder, end = begun[0]
            raise ConfigurationError(
                f"{where}: the secret that signs messages in the log was changed, but the former one stays valid: "
                f"{holder} began before, and may still sign with it",
                remedy="let it end, then run `tranrepl setup FILE --new-secret` again, which makes no other secret. "
                f"At the Publisher, this ends it:\n{end};",
            )
        time.sleep(0.05)
        open_now = {it for it, *_ in session.execute(_BEGUN)}
        begun = [it for it in begun if it[0] in open_now]
    session.execute(_END_FORMER)
    return is_another


def change_warnings(session: Session, where: str) -> Iterator[str]:
    """Yield that a change of the secret was not ended; nothing where our role may not look."""
    with suppress(InsufficientPrivilege, UndefinedTable), session.transaction():
        if session.execute(_NOT_ENDED).fetchone() is not None:
            yield (
                f"{where}: the secret that signs messages in the log was changed, but the former one stays valid: "
                "`tranrepl setup FILE --new-secret` ends that"
            )


def untrusted_owners(
    session: Session, where: str, publication: str, functions: Sequence[str] = ()
) -> Iterator[ConfigurationError]:
    """Yield a problem where a role that is not trusted owns what signs messages, or may replace it.

    `functions`: the names of those that sign.
    """
    arguments = {
        "schema": SCHEMA,
        "table": SECRET_TABLE,
        "functions": list(functions),
        "publication": publication,
    }
    with translated_errors(where):
        found = session.execute(_UNTRUSTED, arguments).fetchall()
    if not found:
        return
    owned = "; ".join(f"{what} belongs to role {owner}" for what, owner, _ in found)
    statements = "\n".join(f"{mend};" for *_, mend in found)
    yield ConfigurationError(
        f"{where}: {owned}, which is neither a superuser nor the role of setup or of the database: who owns it could "
        "sign messages in the log as ours",
        remedy=f"let a superuser run this, then run `tranrepl setup FILE` again:\n{statements}",
    )


def open_to_others(
    session: Session, where: str, functions: Sequence[str], announce: str
) -> Iterator[ConfigurationError]:
    """Yield a problem where others than their owners have rights on what signs messages that setup gives nobody: any
    right of PUBLIC, and of each other role all but to read and change the secret, and to call `announce`."""
    arguments = {
        "schema": SCHEMA,
        "table": SECRET_TABLE,
        "functions": list(functions),
        "announce": f"{SCHEMA}.{announce}",
    }
    with translated_errors(where):
        found = session.execute(_OPEN, arguments).fetchall()
    if found:
        yield ConfigurationError(
            f"{where}: {', '.join(f'{grantee} has rights on {what}' for what, grantee in found)}, which setup gives "
            "nobody: who has them may sign messages in the log as ours",
            remedy="let the owner, or a superuser, run this:\n"
            + "\n".join(f"REVOKE ALL ON {what} FROM {grantee};" for what, grantee in found),
        )


def read_secrets(session: Session, where: str, publication: str) -> tuple[MessageSecret, ...]:
    """Return the secrets that messages in the log may be signed with, the one in use first; none where setup has made
    none. Raises MissingRightError where our role may not read them, and ConfigurationError where another login than
    those that setup trusts owns them: any login that may create in the database could have made a table of that
    name."""
    for problem in untrusted_owners(session, where, publication):
        raise problem
    with translated_errors(where):
        try:
            with session.transaction():
                row = session.execute(_SECRETS).fetchone()
        except UndefinedTable:
            return ()
        except InsufficientPrivilege as error:
            raise lacking_right(
                where,
                f"role {our_role(session)} may not read the secret that signs messages in the log",
                _grants(session),
                JobRightError,
            ) from error
    if row is None:
        return ()
    inner, outer, former_inner, former_outer, replaced_at = row
    secrets = [MessageSecret(inner, outer)]
    if former_inner is not None:
        secrets.append(MessageSecret(former_inner, former_outer, None if replaced_at is None else int(replaced_at)))
    return tuple(secrets)


def _grants(session: Session) -> list[str]:
    role = quoted_role(our_role(session))
    return [f"GRANT USAGE ON SCHEMA {SCHEMA} TO {role}", f"GRANT SELECT ON {SCHEMA}.{SECRET_TABLE} TO {role}"]


def whole_xid(xid: int, near: int) -> int:
    """Return a transaction's 64-bit id, from the 32 bits that the log has and the id of a transaction of about that
    time."""
    return near + (xid - near + XIDS // 2) % XIDS - XIDS // 2
