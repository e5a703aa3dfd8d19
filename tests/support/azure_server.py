"""Azurite, a server of Azure's own that keeps blobs: started on loopback, gone with its owner."""

from __future__ import annotations

import base64
import hmac
import secrets
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest
from obstore.store import AzureStore

from support.checkout import CHECKOUT
from support.object_server import BucketServer
from support.processes import free_port
from tranrepl.connections import Connection

_UNPACKED = CHECKOUT / ".venv" / "servers" / "azurite"
_ACCOUNT = "shop"
_VERSION = "2023-11-03"
"""The version of the protocol."""


class AzureServer(BucketServer):
    """Azurite. Its buckets are containers."""

    scheme = "az"
    forbidden = "AuthorizationPermissionMismatch"

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._port = free_port()
        self._key = secrets.token_bytes(32)

    @staticmethod
    def require() -> None:
        """Skip the test where the server could not be had."""
        if not (_UNPACKED / "ready").exists() or shutil.which("node") is None:
            pytest.skip("azurite is not there: `make servers` says why")

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port}/{_ACCOUNT}"

    @property
    def _command(self) -> list[str]:
        return [
            shutil.which("node") or "node",
            str(_UNPACKED / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"),
            *("--location", str(self._home / "data"), "--blobPort", str(self._port), "--silent", "--disableTelemetry"),
        ]

    @property
    def _environment(self) -> dict[str, str]:
        return {"AZURITE_ACCOUNTS": f"{_ACCOUNT}:{self._text_key}"}

    @property
    def _text_key(self) -> str:
        return base64.b64encode(self._key).decode()

    def make_bucket(self, bucket: str) -> None:
        date = formatdate(usegmt=True)
        signed = (
            f"PUT{12 * chr(10)}x-ms-date:{date}\nx-ms-version:{_VERSION}\n/{_ACCOUNT}/{_ACCOUNT}/{bucket}\n"
            "restype:container"
        )
        headers = {"x-ms-date": date, "x-ms-version": _VERSION, "authorization": self._signature_of(signed)}
        address = f"{self.endpoint}/{bucket}?restype=container"
        with urlopen(Request(address, method="PUT", headers=headers)) as answer:  # noqa: S310 — our own server's
            answer.read()

    def _signature_of(self, request: str) -> str:
        return f"SharedKey {_ACCOUNT}:{self._signed(request)}"

    def _signed(self, text: str) -> str:
        return base64.b64encode(hmac.digest(self._key, text.encode(), "sha256")).decode()

    def connection(self, *, may_write: bool = True) -> Connection:
        made = Connection("store", "wasb", host=self.endpoint, login=_ACCOUNT)
        if may_write:
            return replace(made, password=self._text_key)
        return replace(made, options={"sas_token": self._reading()})

    def _reading(self) -> str:
        """Return a token by which all containers may be read and listed."""
        until = f"{datetime.now(UTC) + timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"
        signed = f"{_ACCOUNT}\nrl\nb\nsco\n\n{until}\n\n\n{_VERSION}\n\n"
        return urlencode(
            {"sv": _VERSION, "ss": "b", "srt": "sco", "sp": "rl", "se": until, "sig": self._signed(signed)}
        )

    def _client(self, bucket: str) -> AzureStore:
        return AzureStore(
            bucket,
            account_name=_ACCOUNT,
            account_key=self._text_key,
            endpoint=self.endpoint,
            client_options={"allow_http": True},
        )
