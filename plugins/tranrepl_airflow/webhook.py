"""A notifier that posts JSON to an address."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
from airflow.sdk import BaseHook, BaseNotifier, Connection, Context
from airflow.sdk.exceptions import AirflowException

_SECONDS = 15.0
_PROTOCOLS = ("http", "https")
_NO_HEADERS = ("allow_redirects", "cert", "check_response", "max_redirects", "proxies", "proxy", "stream", "trust_env")
"""What the extra of Airflow's HTTP connections may hold beside headers, and cannot be used here."""


@dataclass(frozen=True, slots=True)
class _Receiver:
    """Where to post, and as who. Its repr shows nothing: the address may be secret, too."""

    url: httpx.URL = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    auth: tuple[str, str] | None = field(repr=False)
    verify: str
    """`true`, `false`, or a file of certificates."""
    timeout: float

    def ask(self, method: str, **sent: Any) -> httpx.Response:
        """Send a request; redirects are not followed, so that a token goes nowhere else."""
        named = self.verify.lower() not in ("true", "false")
        verify = ssl.create_default_context(cafile=self.verify) if named else self.verify.lower() == "true"
        headers = [(name.encode(), value.encode()) for name, value in self.headers.items()]
        with httpx.Client(verify=verify, timeout=self.timeout) as client:
            return client.request(method, self.url, headers=headers, auth=self.auth, **sent)


class WebhookNotifier(BaseNotifier):
    """Posts `body` (default: all fields of the alert) as JSON to the address of an Airflow connection.

    The connection is one of Airflow's HTTP connections, as its form or `--conn-uri https://:token@host:port/path`
    writes it, or one whose host is the whole address. A password is the bearer token; with a login both are for basic
    authentication. The extra has headers, and may have `verify` (a file of certificates, or false) and `timeout`.
    Address and password may be secret, so no message repeats them. Raises AirflowException where the receiver does not
    take it.
    """

    template_fields: Sequence[str] = ("body",)

    def __init__(self, *, connection: str, body: Any = None, context: Context | None = None) -> None:
        super().__init__(context)
        self.connection = connection
        self.body = body

    def notify(self, context: Context) -> None:
        answer = self._asked("POST", json=self.body if self.body is not None else dict(context).get("alert"))
        if not answer.is_success:
            raise AirflowException(f"webhook {self.connection}: HTTP status {answer.status_code}")

    def try_out(self) -> str:
        """Ask the receiver without sending an alert, and return what it said: what takes a POST may refuse this."""
        answer = self._asked("HEAD")
        if answer.is_server_error:
            raise AirflowException(f"webhook {self.connection}: HTTP status {answer.status_code} to HEAD")
        return f"webhook {self.connection} answers, with HTTP status {answer.status_code} to HEAD"

    def _asked(self, method: str, **sent: Any) -> httpx.Response:
        receiver = self._receiver(BaseHook.get_connection(self.connection))
        try:
            return receiver.ask(method, **sent)
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            raise AirflowException(f"webhook {self.connection}: {type(error).__name__}") from None

    def _receiver(self, connection: Connection) -> _Receiver:
        extra = dict(connection.extra_dejson)
        unusable = ", ".join(it for it in _NO_HEADERS if it in extra)
        if unusable:
            raise AirflowException(f"webhook {self.connection}: its extra has {unusable}, which cannot be used here")
        verify, timeout = str(extra.pop("verify", True)), extra.pop("timeout", _SECONDS)
        headers = {name: str(value) for name, value in {**extra.pop("headers", {}), **extra}.items()}
        login, password = connection.login, connection.password
        if password and not login:
            headers["Authorization"] = f"Bearer {password}"
        try:
            url = _address(connection)
        except httpx.InvalidURL as error:
            raise AirflowException(f"webhook {self.connection}: {type(error).__name__}") from None
        if not url.host:
            raise AirflowException(f"webhook {self.connection}: its connection has no host")
        return _Receiver(url, headers, (login, password or "") if login else None, verify, float(timeout))


def _address(connection: Connection) -> httpx.URL:
    """Return the address: of the form, whose schema is the protocol, or of a URI, whose path Airflow calls schema."""
    host, schema = connection.host or "", connection.schema or ""
    protocol = next((it for it in (schema, connection.conn_type) if it in _PROTOCOLS), "https")
    bracketed = f"[{host}]" if ":" in host and "[" not in host else host
    url = httpx.URL(host if "://" in host else f"{protocol}://{bracketed}")
    if connection.port and url.port is None:
        url = url.copy_with(port=connection.port)
    if schema and schema not in _PROTOCOLS:
        url = url.copy_with(path=f"{url.path.rstrip('/')}/{schema.lstrip('/')}")
    return url
