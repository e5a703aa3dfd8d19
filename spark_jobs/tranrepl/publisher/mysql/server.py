"""What a server is, as far as its log and its values are concerned."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tranrepl.connections import Connection
from tranrepl.errors import ConfigurationError
from tranrepl.mysql.session import Session, translated_errors
from tranrepl.publisher.mysql.charsets import BINARY, Charsets, is_utf8
from tranrepl.publisher.mysql.positions import file_number, place_at
from tranrepl.publisher.mysql.table_maps import Flavor

_ALL = bytes(range(256))
_FEWEST_DIGITS = 6
_NAMES = {Flavor.MARIADB: "MariaDB", Flavor.MYSQL: "MySQL"}
_OLDEST = {Flavor.MARIADB: (10, 6), Flavor.MYSQL: (9, 7)}
RUN = {Flavor.MARIADB: ((10, 11), (11, 8)), Flavor.MYSQL: ((9, 7),)}
"""Those that tests run against, in order."""
END_OF_LOG = {Flavor.MARIADB: "SHOW MASTER STATUS", Flavor.MYSQL: "SHOW BINARY LOG STATUS"}


@dataclass(frozen=True)
class ServerLog:
    """A server's log: what its files are called, and what is needed to read its values."""

    connection: Connection
    flavor: Flavor
    base: str
    """A file's name without its number."""
    digits: int
    charsets: Charsets

    @property
    def where(self) -> str:
        return f"Publisher {self.connection.database}"

    def file(self, number: int) -> str:
        return f"{self.base}.{number:0{self.digits}}"


def end_of_log(session: Session, flavor: Flavor) -> int:
    """Return the place at which the log ends."""
    ((name, offset, *_),) = session.execute(END_OF_LOG[flavor])
    return place_at(file_number(name), int(offset))


def read_server_log(session: Session, connection: Connection, where: str) -> ServerLog:
    """Return the server's log. Raises ConfigurationError where it writes none, and where the server is too old, whose
    statements may be others."""
    with translated_errors(where):
        ((version, is_logged),) = session.execute("SELECT VERSION(), @@log_bin")
        flavor = Flavor.MARIADB if "mariadb" in version.lower() else Flavor.MYSQL
        if version_of(version) < _OLDEST[flavor]:
            oldest, newest = (".".join(map(str, it)) for it in (_OLDEST[flavor], RUN[flavor][-1]))
            raise ConfigurationError(
                f"{where}: the server is {version}, older than {oldest}: a log of it was never read",
                remedy=f"use {_NAMES[flavor]} {oldest}" + ("" if oldest == newest else f" to {newest}"),
            )
        if not is_logged:
            raise ConfigurationError(
                f"{where}: the server writes no binary log",
                remedy="log_bin, server_id and binlog_format = ROW in its configuration, and start it again",
            )
        ((name, *_),) = session.execute(END_OF_LOG[flavor])
        base, _, number = name.rpartition(".")
        return ServerLog(connection, flavor, base, max(len(number), _FEWEST_DIGITS), _charsets(session, flavor))


def version_of(text: str) -> tuple[int, ...]:
    """Return the first two numbers of a version."""
    return tuple(int(it) for it in re.findall(r"\d+", text)[:2])


def _charsets(session: Session, flavor: Flavor) -> Charsets:
    collations: dict[int, str] = dict(
        session.execute(
            "SELECT id, character_set_name FROM information_schema.collation_character_set_applicability "
            "WHERE id IS NOT NULL"
            if _has_numbers_there(session, flavor)
            else "SELECT id, character_set_name FROM information_schema.collations WHERE id IS NOT NULL"
        )
    )
    single = session.execute("SELECT character_set_name FROM information_schema.character_sets WHERE maxlen = 1")
    names = [name for (name,) in single if name != BINARY and not is_utf8(name)]
    if not names:
        return Charsets(collations)
    # Names are the server's own words: letters and digits.
    selected = ", ".join(f"CONVERT(_{name} X'{_ALL.hex()}' USING utf8mb4)" for name in names)
    (texts,) = session.execute(f"SELECT {selected}")
    return Charsets(
        collations, {name: tuple(text) for name, text in zip(names, texts, strict=True) if len(text) == 256}
    )


def _has_numbers_there(session: Session, flavor: Flavor) -> bool:
    """Return whether collations that several character sets share have their numbers in a view of their own."""
    if flavor is Flavor.MYSQL:
        return False
    found = session.execute(
        "SELECT 1 FROM information_schema.columns WHERE table_schema = 'information_schema' AND column_name = 'ID' "
        "AND table_name = 'COLLATION_CHARACTER_SET_APPLICABILITY'"
    )
    return bool(found)
