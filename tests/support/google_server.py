"""The server of `google_storage.py`: started on loopback, gone with its owner, and who may ask it."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from urllib.request import Request, urlopen

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from obstore.store import GCSStore

from support import google_storage
from support.object_server import BucketServer
from support.processes import free_port
from tranrepl.connections import Connection

_RIGHTS = {"admin": ("read", "write", "administer"), "writer": ("read", "write"), "reader": ("read",)}


class GoogleServer(BucketServer):
    """What obstore asks of Google Cloud Storage."""

    scheme = "gs"
    forbidden = "AccessDenied"

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._port = free_port()
        self._keys = {it: generate_private_key(65537, 2048) for it in _RIGHTS}

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def _command(self) -> list[str]:
        return [sys.executable, google_storage.__file__, str(self._port), str(self._home / "data")]

    @property
    def _environment(self) -> dict[str, str]:
        return {}

    def start(self) -> None:
        accounts = {it: {"key": _public(self._keys[it]), "rights": rights} for it, rights in _RIGHTS.items()}
        (self._home / "data").mkdir(exist_ok=True)
        (self._home / "data" / google_storage.ACCOUNTS).write_text(json.dumps(accounts))
        super().start()

    def make_bucket(self, bucket: str) -> None:
        now = int(time.time())
        claims = {"iss": "admin", "sub": "admin", "iat": now, "exp": now + 60}
        token = jwt.encode(claims, self._keys["admin"], "RS256", {"kid": "admin"})
        request = Request(f"{self.endpoint}/{bucket}", method="PUT", headers={"authorization": f"Bearer {token}"})  # noqa: S310
        with urlopen(request) as answer:  # noqa: S310 — our own server's
            answer.read()

    def connection(self, *, may_write: bool = True) -> Connection:
        if may_write:
            return self._connected({"keyfile_dict": self._key_file("writer")})
        path = self._home / "reader.json"
        path.write_text(self._key_file("reader"))
        return self._connected({"key_path": str(path)})

    def refused_connections(self) -> list[Connection]:
        another = generate_private_key(65537, 2048)
        return [self._connected({"keyfile_dict": _key_file(it, another)}) for it in ("writer", "another")]

    def _connected(self, options: dict[str, str]) -> Connection:
        return Connection("store", "google_cloud_platform", options={"endpoint_url": self.endpoint, **options})

    def _key_file(self, account: str) -> str:
        return _key_file(account, self._keys[account])

    def _client(self, bucket: str) -> GCSStore:
        return GCSStore(
            bucket,
            base_url=self.endpoint,
            service_account_key=self._key_file("admin"),
            client_options={"allow_http": True},
        )


def _key_file(account: str, key: RSAPrivateKey) -> str:
    """Return what Google gives for a service account."""
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    address = f"{account}@project.iam.gserviceaccount.com"
    return json.dumps(
        {"type": "service_account", "private_key_id": account, "private_key": private, "client_email": address}
    )


def _public(key: RSAPrivateKey) -> str:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
