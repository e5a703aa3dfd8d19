"""Options of a SQL Server's connection: what the driver takes, and what is refused by name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tranrepl.connections import from_environment
from tranrepl.errors import ConfigurationError
from tranrepl.subscriber.mssql import connection_options
from tranrepl.subscriber.mssql.connection_options import driver_options


def _options(query: str) -> dict[str, str]:
    value = f"mssql://sa:secret@127.0.0.1:1433/reporting?{query}"
    return driver_options(from_environment("sub", {"AIRFLOW_CONN_SUB": value}))


def test_options_of_the_driver_pass_through() -> None:
    assert _options("encryption=require&tds_version=7.4&timeout=60&appname=tranrepl") == {
        "login_timeout": "15",
        "encryption": "require",
        "tds_version": "7.4",
        "timeout": "60",
        "appname": "tranrepl",
        "charset": "UTF-8",
    }


@pytest.mark.parametrize(
    ("query", "message", "remedy"),
    [
        ("encrypt=yes", "SQL Server's driver knows no option 'encrypt'", "did you mean encryption? Allowed: "),
        ("charset=latin1", "SQL Server's driver knows no option 'charset'", "Allowed: "),
        ("encryption=yes", "option encryption is 'yes'", "allowed: off, request, require"),
        ("tds_version=7.1", "option tds_version is '7.1'", "allowed: 7.3, 7.4"),
        ("timeout=soon", "option timeout is 'soon'", "allowed: a number of seconds"),
        ("cafile=/nowhere/ca.pem", "option cafile is '/nowhere/ca.pem'", "name a readable file of certificates (PEM)"),
    ],
)
def test_an_option_that_is_wrong_is_named(query: str, message: str, remedy: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        _options(query)
    assert caught.value.message == f"connection 'sub': {message}"
    assert (caught.value.report.remedy or "").startswith(remedy)
    assert "secret" not in repr(caught.value.report)


def test_certificates_to_trust_require_encryption(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("")
    assert _options(f"cafile={file}")["encryption"] == "require"
    with pytest.raises(
        ConfigurationError, match="cafile says which certificates to trust, and encryption is 'request'"
    ):
        _options(f"cafile={file}&encryption=request")


def test_certificates_are_named_to_freetds_while_it_connects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FREETDSCONF", "/etc/freetds/own.conf")
    file, seen = tmp_path / "ca.pem", []

    class Dialect:
        def connect(self, **keywords: Any) -> str:
            settings = Path(os.environ["FREETDSCONF"]).read_text(encoding="utf-8")
            seen.append((keywords, settings))
            return "session"

    keywords = {"host": "db", "cafile": str(file)}
    assert connection_options._connect(Dialect(), None, [], keywords) == "session"  # type: ignore[arg-type]
    assert seen == [({"host": "db"}, f"[global]\n\tca file = {file}\n\tcheck certificate hostname = yes\n")]
    assert os.environ["FREETDSCONF"] == "/etc/freetds/own.conf"
