"""Options of a connection to SQL Server, as pymssql takes them, and the one that only FreeTDS under it takes.

FreeTDS reads the certificates to trust from its configuration file, which an environment variable names, and from
nowhere else. Source: FreeTDS User Guide, "freetds.conf": `ca file`, `check certificate hostname`.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event

from tranrepl.connections import Connection
from tranrepl.errors import ConfigurationError
from tranrepl.spelling import likeliest

_CA_FILE = "cafile"
_ENCRYPTION = "encryption"
_REQUIRED = "require"
_CONFIGURATION = "FREETDSCONF"
_LOGIN_SECONDS = "15"
_VERSIONS = ("7.3", "7.4")
"""Older ones know neither `datetime2` nor `datetimeoffset`."""
_CONNECTING = threading.Lock()
"""Held while the environment is changed, which is the process's."""


def _one_of(*allowed: str) -> Callable[[str], str | None]:
    return lambda value: None if value in allowed else f"allowed: {', '.join(allowed)}"


def _seconds(value: str) -> str | None:
    return None if value.isdecimal() else "allowed: a number of seconds"


def _readable_file(value: str) -> str | None:
    return None if Path(value).is_file() and os.access(value, os.R_OK) else "name a readable file of certificates (PEM)"


_OPTIONS: Mapping[str, Callable[[str], str | None]] = {
    _ENCRYPTION: _one_of("off", "request", _REQUIRED),
    _CA_FILE: _readable_file,
    "tds_version": _one_of(*_VERSIONS),
    "login_timeout": _seconds,
    "timeout": _seconds,
    "appname": lambda _: None,
}
"""By name, what is wrong with a value."""


def driver_options(connection: Connection) -> dict[str, str]:
    """Return what the driver is given. Raises ConfigurationError for an option that it does not know, and for a value
    that it does not take."""
    for name, value in connection.options.items():
        _check(connection, name, value)
    options = {"login_timeout": _LOGIN_SECONDS, **connection.options, "charset": "UTF-8"}
    if _CA_FILE in options and options.setdefault(_ENCRYPTION, _REQUIRED) != _REQUIRED:
        raise ConfigurationError(
            f"connection {connection.connection_id!r}: {_CA_FILE} says which certificates to trust, and "
            f"{_ENCRYPTION} is {options[_ENCRYPTION]!r}",
            remedy=f'{_ENCRYPTION}: "{_REQUIRED}", or no {_CA_FILE}',
        )
    return options


def _check(connection: Connection, name: str, value: str) -> None:
    at = f"connection {connection.connection_id!r}"
    if name not in _OPTIONS:
        near = likeliest(name, _OPTIONS)
        question = "" if near is None else f"did you mean {near}? "
        raise ConfigurationError(
            f"{at}: SQL Server's driver knows no option {name!r}", remedy=f"{question}Allowed: {', '.join(_OPTIONS)}"
        )
    wrong = _OPTIONS[name](value)
    if wrong is not None:
        raise ConfigurationError(f"{at}: option {name} is {value!r}", remedy=wrong)


def certificate_remedy(connection: Connection) -> str | None:
    """Return what may be wrong with certificates where a connection does not come about: the driver does not say."""
    if _CA_FILE not in connection.options:
        return None
    return (
        f"the server's certificate must be signed by one of {connection.options[_CA_FILE]} ({_CA_FILE}), and be for "
        f"the host {connection.host}"
    )


def trust_certificates(engine: sa.Engine) -> sa.Engine:
    """Return the engine, whose sessions trust the certificates that its connection names, and the server's name."""
    event.listen(engine, "do_connect", _connect)
    return engine


def _connect(dialect: sa.Dialect, record: object, arguments: list[Any], keywords: dict[str, Any]) -> Any:
    del record
    path = keywords.pop(_CA_FILE, None)
    with _CONNECTING, _configuration(path):
        return dialect.connect(*arguments, **keywords)


@contextmanager
def _configuration(ca_file: str | None) -> Iterator[None]:
    if ca_file is None:
        yield
        return
    before = os.environ.get(_CONFIGURATION)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".conf") as file:
        file.write(f"[global]\n\tca file = {Path(ca_file).absolute()}\n\tcheck certificate hostname = yes\n")
        file.flush()
        os.environ[_CONFIGURATION] = file.name
        try:
            yield
        finally:
            if before is None:
                del os.environ[_CONFIGURATION]
            else:
                os.environ[_CONFIGURATION] = before
