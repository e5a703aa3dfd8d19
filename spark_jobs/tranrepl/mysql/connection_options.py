"""Options of a connection to MariaDB or MySQL, as Airflow's hook takes them, in PyMySQL's words.

Sources: `MySqlHook` of Airflow's MySQL provider, for both of its drivers; MySQL, `--ssl-mode`; PyMySQL, `connect`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pymysql.constants import CLIENT

from tranrepl.connections import Connection, used
from tranrepl.errors import ConfigurationError
from tranrepl.spelling import likeliest

CHARSET = "utf8mb4"
_CONNECT_SECONDS = 15
_TEXTS = ("unix_socket", "bind_address", "init_command", "read_default_file", "read_default_group", "program_name")
_NUMBERS = ("connect_timeout", "read_timeout", "write_timeout", "client_flag")
_TLS = "ssl"
_TLS_DISABLED = "ssl_disabled"
_TLS_MODE = "ssl_mode"
_VERIFIED = {
    "PREFERRED": {},
    # Without certificates to trust, the connection is encrypted, to any server that answers.
    "REQUIRED": {"check_hostname": False},
    "VERIFY_CA": {"check_hostname": False, "verify_mode": True},
    "VERIFY_IDENTITY": {"check_hostname": True, "verify_mode": True},
}
_TLS_MODES = ("DISABLED", *_VERIFIED)
_TLS_TEXTS = {
    "ssl_ca": "ca",
    "ssl_capath": "capath",
    "ssl_cert": "cert",
    "ssl_key": "key",
    "ssl_key_password": "password",
    "ssl_cipher": "cipher",
}
_TLS_TRUTHS = {
    "ssl_check_hostname": "check_hostname",
    "ssl_verify_identity": "check_hostname",
    "ssl_verify_cert": "verify_mode",
    "ssl_verify_mode": "verify_mode",
}
_TLS_OPTIONS = (_TLS, _TLS_MODE, _TLS_DISABLED, *_TLS_TEXTS, *_TLS_TRUTHS)
_TRUTHS = {
    "true": True,
    "1": True,
    "yes": True,
    "required": True,
    "false": False,
    "0": False,
    "no": False,
    "none": False,
}
_HOOKS_OWN = "Airflow's hook has it for itself"
_NO_TOKENS = "no token is fetched: give the connection a login and a password of the database"
_SESSIONS_OWN = "tranrepl's sessions set it themselves"
_NOT_USED = {
    **dict.fromkeys(("cursor", "client"), _HOOKS_OWN),
    **dict.fromkeys(("iam", "aws_conn_id"), _NO_TOKENS),
    **dict.fromkeys(("charset", "use_unicode", "sql_mode", "autocommit", "cursorclass", "conv"), _SESSIONS_OWN),
    "local_infile": "no file is loaded by the server's wish",
}
_UNKNOWN = "PyMySQL has no such option"


def driver_arguments(connection: Connection) -> dict[str, Any]:
    """Return what the driver is given beside the URL. Raises ConfigurationError for a value that it does not take, and
    for an option about TLS that nobody knows: a connection in clear text must not follow from a misspelling."""
    options = {name: value for name, value in connection.options.items() if value}
    arguments: dict[str, Any] = {name: options[name] for name in _TEXTS if name in options}
    arguments |= {name: _number(connection, name, options[name]) for name in _NUMBERS if name in options}
    arguments.setdefault("connect_timeout", _CONNECT_SECONDS)
    # SQLAlchemy counts the rows that a statement finds, not those that it changes.
    arguments["client_flag"] = arguments.get("client_flag", 0) | CLIENT.FOUND_ROWS
    return arguments | _tls(connection, options)


def unused_options(connection: Connection) -> dict[str, str]:
    """Return why each option that is not used is not, by name."""
    return {
        name: _NOT_USED.get(name, _UNKNOWN)
        for name, value in used(connection.options).items()
        if name not in (*_TEXTS, *_NUMBERS, *_TLS_OPTIONS) and (name, value.lower()) != ("charset", CHARSET)
    }


def _tls(connection: Connection, options: Mapping[str, str]) -> dict[str, Any]:
    options = {**options, **_tls_object(connection, options)}
    for name in options:
        if name.startswith(_TLS) and name not in _TLS_OPTIONS:
            near = likeliest(name, _TLS_OPTIONS)
            question = "" if near is None else f"did you mean {near}? "
            raise _refused(connection, f"no option {name!r} of TLS", f"{question}Allowed: {', '.join(_TLS_OPTIONS)}")
    mode = options.get(_TLS_MODE, "PREFERRED").upper()
    if mode not in _TLS_MODES:
        raise _refused(connection, f"{_TLS_MODE} is {options[_TLS_MODE]!r}", f"allowed: {', '.join(_TLS_MODES)}")
    if mode == "DISABLED" or _truth(connection, _TLS_DISABLED, options.get(_TLS_DISABLED, "false")):
        return {"ssl_disabled": True}
    tls: dict[str, Any] = dict(_VERIFIED[mode])
    tls |= {word: options[name] for name, word in _TLS_TEXTS.items() if name in options}
    tls |= {word: _truth(connection, name, options[name]) for name, word in _TLS_TRUTHS.items() if name in options}
    if not tls.get("verify_mode", True):
        # The driver refuses to compare a name that nobody vouches for.
        tls["check_hostname"] = False
    elif (tls.get("verify_mode") or tls.get("check_hostname")) and not {"ca", "capath"} & set(tls):
        raise _refused(
            connection,
            "its extra asks for the server's certificate to be verified, and names none to trust",
            '"ssl_ca": "/etc/ssl/ca.pem", or the authority that has signed the server\'s',
        )
    if not tls and options.get(_TLS) == "true":
        tls = dict(_VERIFIED["REQUIRED"])
    return {"ssl": tls} if tls else {}


def _tls_object(connection: Connection, options: Mapping[str, str]) -> dict[str, str]:
    """Return what `ssl` holds, which is an object, or an object's text in JSON, as options of their own."""
    text = options.get(_TLS, "{}")
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if isinstance(found, bool):
        return {}
    if not isinstance(found, dict):
        raise _refused(connection, f"{_TLS} is {text!r}", f'allowed: {_TLS}: {{"ca": "/etc/ssl/ca.pem"}}, or true')
    words = {name.replace("-", "_").removeprefix("ssl_"): value for name, value in found.items()}
    named = {word: name for name, word in (_TLS_TEXTS | {"ssl_verify_mode": "verify_mode"}).items()}
    return {
        named.get(word, f"ssl_{word}"): value if isinstance(value, str) else json.dumps(value)
        for word, value in words.items()
        if value is not None
    }


def _number(connection: Connection, name: str, value: str) -> int:
    if not value.isdecimal():
        raise _refused(connection, f"{name} is {value!r}", "allowed: a number")
    return int(value)


def _truth(connection: Connection, name: str, value: str) -> bool:
    if value.lower() not in _TRUTHS:
        raise _refused(connection, f"{name} is {value!r}", "allowed: true, false")
    return _TRUTHS[value.lower()]


def _refused(connection: Connection, what: str, remedy: str) -> ConfigurationError:
    return ConfigurationError(f"connection {connection.connection_id!r}: {what}", remedy=remedy)
