"""Servers of object storage that belong to one process: started on loopback, gone with their owner. SeaweedFS has S3's
protocol."""

from __future__ import annotations

import base64
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import obstore
from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, S3Store

from support.processes import dying_with_owner, free_port
from tranrepl.connections import Connection

_START_SECONDS = 120.0
_STOP_SECONDS = 30.0
_PORTS = tuple(f"{it}.port{kind}" for it in ("master", "volume", "filer", "s3") for kind in ("", ".grpc"))


class ObjectServerError(Exception):
    """A server that did not start, with the end of its log."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """A store in a bucket of its own, and the connection that leads there."""

    scheme: str
    name: str
    connection: Connection

    @property
    def store(self) -> str:
        return f"{self.scheme}://{self.name}/a/store"


class BucketServer(ABC):
    """One data directory in `home`, made for this server."""

    scheme: ClassVar[str]
    forbidden: ClassVar[str]
    """The code of its answer to who may only read."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._numbers = count(1)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._home.mkdir(parents=True)
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    @abstractmethod
    def endpoint(self) -> str: ...

    @abstractmethod
    def connection(self, *, may_write: bool = True) -> Connection:
        """Return a connection that may not administer the server."""

    def refused_connections(self) -> list[Connection]:
        """Return one whose key is not its account's, and one of an account that is not there."""
        given = self.connection()
        return [replace(given, password=base64.b64encode(b"another").decode()), replace(given, login="another")]

    @abstractmethod
    def make_bucket(self, bucket: str) -> None: ...

    @property
    @abstractmethod
    def _command(self) -> list[str]: ...

    @property
    @abstractmethod
    def _environment(self) -> dict[str, str]:
        """What it has beside ours."""

    @abstractmethod
    def _client(self, bucket: str) -> S3Store | AzureStore | GCSStore:
        """Return an administrator's."""

    def start(self) -> None:
        """Start it, with what it had."""
        (self._home / "data").mkdir(exist_ok=True)
        log = self._home / "log"
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                dying_with_owner(self._command, signal.SIGKILL),
                stdout=file,
                stderr=file,
                cwd=self._home,
                env=os.environ | self._environment,
            )
        until = time.monotonic() + _START_SECONDS
        while time.monotonic() < until:
            try:
                with suppress(HTTPError):
                    self.make_bucket("started")
                obstore.put(self._client("started"), "started", b"")
            except (BaseError, OSError):
                time.sleep(0.1)
            else:
                return
        raise ObjectServerError(log.read_text(errors="replace")[-2000:])

    def signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def kill(self) -> None:
        if self._process is not None:
            self.signal(signal.SIGKILL)
            self._process.wait(_STOP_SECONDS)
            self._process = None

    def new_bucket(self) -> Bucket:
        """Return a new one, whose name is no answer."""
        name = f"expired-403-{next(self._numbers)}"
        self.make_bucket(name)
        return Bucket(self.scheme, name, self.connection())

    def objects(self, bucket: str) -> list[str]:
        """Return the names of all that is there."""
        return sorted(it["path"] for it in obstore.list(self._client(bucket)).collect())

    def put(self, bucket: str, name: str, content: bytes) -> None:
        obstore.put(self._client(bucket), name, content)

    def get(self, bucket: str, name: str) -> bytes:
        return bytes(obstore.get(self._client(bucket), name).bytes())

    def delete(self, bucket: str, name: str) -> None:
        obstore.delete(self._client(bucket), [name])


@dataclass(frozen=True, slots=True)
class Identity:
    name: str
    secret: str
    actions: tuple[str, ...]

    @property
    def settings(self) -> dict[str, object]:
        keys = {"accessKey": self.name, "secretKey": self.secret}
        return {"name": self.name, "credentials": [keys], "actions": self.actions}


class ObjectServer(BucketServer):
    """SeaweedFS."""

    scheme = "s3"
    forbidden = "AccessDenied"

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._ports = {it: free_port() for it in _PORTS}
        # An administrator's key makes the buckets that it names: ours may not.
        self._admin = _identity("admin", "Admin", "Read", "Write", "List")
        self._writer = _identity("writer", "Read", "Write", "List")
        self._reader = _identity("reader", "Read", "List")

    @property
    def address(self) -> Connection:
        return Connection("store", "aws", host="127.0.0.1", port=self._ports["s3.port"])

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._ports['s3.port']}"

    @property
    def _command(self) -> list[str]:
        return [
            str(Path(sys.executable).with_name("weed")),
            *("server", f"-dir={self._home / 'data'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-volume.max=2000"),
            *("-master.volumeSizeLimitMB=64", "-volume.minFreeSpace=1MiB", "-master.telemetry=false"),
            *("-s3", f"-s3.config={self._home / 's3.json'}", "-s3.iam=false", "-s3.autoCreateBucket=false"),
            *("-s3.port.iceberg=0", "-s3.port.lance=0"),
            *(f"-{name}={port}" for name, port in self._ports.items()),
        ]

    @property
    def _environment(self) -> dict[str, str]:
        # It makes seven by itself, and what a whole test run makes is more than the server may have.
        return {"WEED_MASTER_VOLUME_GROWTH_COPY_1": "1"}

    def start(self) -> None:
        identities = [it.settings for it in (self._admin, self._writer, self._reader)]
        (self._home / "s3.json").write_text(json.dumps({"identities": identities}))
        super().start()

    def make_bucket(self, bucket: str) -> None:
        address = obstore.sign(self._client(bucket), "PUT", "", timedelta(minutes=1))
        with urlopen(Request(address, method="PUT")) as answer:  # noqa: S310 — our own server's
            answer.read()

    def connection(self, *, may_write: bool = True) -> Connection:
        identity = self._writer if may_write else self._reader
        return Connection(
            "store",
            kind="aws",
            login=identity.name,
            password=identity.secret,
            options={"endpoint_url": self.endpoint, "region_name": "us-east-1"},
        )

    def _client(self, bucket: str) -> S3Store:
        return S3Store(
            bucket,
            endpoint=self.endpoint,
            region="us-east-1",
            access_key_id=self._admin.name,
            secret_access_key=self._admin.secret,
            client_options={"allow_http": True},
        )


def _identity(name: str, *actions: str) -> Identity:
    return Identity(name, secrets.token_urlsafe(18), actions)
