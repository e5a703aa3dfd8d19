"""A notifier that posts JSON to an address."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx
from airflow.sdk import BaseHook, BaseNotifier, Context
from airflow.sdk.exceptions import AirflowException

_SECONDS = 15


class WebhookNotifier(BaseNotifier):
    """Posts `body` (default: all fields of the alert) as JSON to the address of an Airflow connection.

    The address is the connection's host, with scheme and path; its password, if any, goes out as a bearer token. Both
    may be secret, so no message repeats them. Raises AirflowException where the receiver does not take it.
    """

    template_fields: Sequence[str] = ("body",)

    def __init__(self, *, connection: str, body: Any = None, context: Context | None = None) -> None:
        super().__init__(context)
        self.connection = connection
        self.body = body

    def notify(self, context: Context) -> None:
        connection = BaseHook.get_connection(self.connection)
        headers = {"Authorization": f"Bearer {connection.password}"} if connection.password else {}
        body = self.body if self.body is not None else dict(context).get("alert")
        try:
            answer = httpx.post(connection.host or "", json=body, headers=headers, timeout=_SECONDS)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise AirflowException(f"webhook {self.connection}: {type(error).__name__}") from None
        if not answer.is_success:
            raise AirflowException(f"webhook {self.connection}: HTTP status {answer.status_code}")
