"""The command store on object storage: Amazon S3 and what speaks its protocol, Google Cloud Storage, Azure.

Python workers and the driver ask it themselves; no jars. A batch is one object, which is there whole or not at all.
"""

from __future__ import annotations

import base64
import io
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from types import ModuleType
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa

from tranrepl.connections import Connection, driver_is_missing, used
from tranrepl.distributor.command_store import FILE, FOLDER, TRIED_BYTES, StoredFolder, StoreSpace
from tranrepl.errors import ConfigurationError, InternalError, TransientError

KINDS = {"s3": "aws", "gs": "google_cloud_platform", "az": "wasb"}
"""The type of Airflow's connection to a store, by the scheme of its URL."""
_PART_BYTES = 8 * 1024 * 1024
_READ_BYTES = 4 * 1024 * 1024
_TRIES: dict[str, Any] = {"max_retries": 10, "retry_timeout": timedelta(seconds=60)}
"""For a server that is slow, busy or restarted."""
_WAITING: dict[str, Any] = {"timeout": "30s", "connect_timeout": "10s"}
_KEY_OPTIONS = ("aws_access_key_id", "aws_secret_access_key")
_USED_OPTIONS = {
    "s3": ("endpoint_url", "region_name", "aws_session_token", *_KEY_OPTIONS),
    "gs": ("endpoint_url", "keyfile_dict", "key_path", "project"),
    "az": ("account_key", "sas_token"),
}
_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound|bucket does not exist")
_NO_IDENTITY = re.compile(r"169\.254\.|metadata\.google|metadata/identity")
_REFUSED = re.compile(r"status code: 40[13]|code: AccessDenied|<Code>(ExpiredToken|InvalidToken)</Code>")
_MISTAKEN = re.compile(
    r"status code: (400(?!.*RequestTimeout)|30\d)|[Rr]eceived redirect|HTTP error: builder error", re.DOTALL
)
_ENDPOINT = re.compile(r"https?://[\w.:\[\]-]+(/[\w./-]*)?")
"""Another one makes the client crash."""
_GONE = re.compile(r"Error performing HEAD |NoSuchKey|BlobNotFound")
_SAID = re.compile(r"<Code>(?P<code>[^<]*)</Code>.*?<Message>(?P<message>[^<]*)", re.DOTALL)
_STATUS = re.compile(r"status code: (\d+ [\w ]+)|(HTTP error: [^\n]*)|(\(code: \w+\))|([Rr]eceived redirect[^\n]*)")
_process: int | None = None
"""The process that has asked object storage: the client's threads are in none that is forked from it."""
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """A `CommandStore`. Its client is made where it is used, in each process by itself."""

    url: str
    connection: Connection | None
    """None: the machine's own identity."""

    @property
    def gathering_interval(self) -> float:
        # Each batch is a request that is paid for, and takes some tens of milliseconds.
        return 0.25

    @property
    def reads_at_once(self) -> int:
        return 16

    def new_file(self, folder: str) -> _NewFile:
        return _NewFile(self, f"{folder}/{FILE}")

    def read(self, folder: str) -> bytes:
        return self._get(f"{folder}/{FILE}")

    def open(self, folder: str) -> pa.NativeFile:
        path = f"{folder}/{FILE}"
        try:
            reader = self.ask("read", lambda api, client: api.open_reader(client, path, buffer_size=_READ_BYTES))
        except FileNotFoundError:
            # It was asked for by HEAD, whose answer does not say whether there is a bucket.
            self._get(path)
            raise
        return pa.PythonFile(_ReadFile(self, reader), mode="r")

    def folders(self) -> Iterator[StoredFolder]:
        for it in self._listed():
            name, _, file = it["path"].partition("/")
            if FOLDER.fullmatch(name) and file == FILE:
                yield StoredFolder(name, it["last_modified"], it["size"])

    def remove(self, folders: Iterable[str]) -> None:
        self._delete([f"{it}/{FILE}" for it in folders])

    def read_text(self, name: str) -> str | None:
        try:
            return self._get(name).decode(errors="replace")
        except FileNotFoundError:
            return None

    def write_text(self, name: str, text: str) -> None:
        # The client may have tried again what was done: then the file is there too, and who asks reads whose it is.
        with suppress(FileExistsError):
            self.ask("write", lambda api, client: api.put(client, name, text.encode(), mode="create"))

    def remove_text(self, name: str) -> None:
        self._delete([name])

    def space(self) -> StoreSpace | None:
        return None

    def problems(self) -> Iterator[ConfigurationError]:
        name, content = f"_tranrepl_check_{uuid.uuid4().hex}", os.urandom(TRIED_BYTES)
        self._put(name, content)
        try:
            if self._get(name) != content or name not in {it["path"] for it in self._listed()}:
                yield ConfigurationError(f"distributor.store: {self.url!r}: what was written there is not found")
        finally:
            self.remove_text(name)

    def warnings(self) -> Iterator[str]:
        yield from ()

    def _get(self, path: str) -> bytes:
        return self.ask("read", lambda api, client: bytes(api.get(client, path).bytes()))

    def _put(self, path: str, content: bytes) -> None:
        self.ask("write", lambda api, client: api.put(client, path, content))

    def _listed(self) -> list[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = self.ask("list", lambda api, client: api.list(client).collect())
        return found

    def _delete(self, paths: list[str]) -> None:
        try:
            self.ask("delete", lambda api, client: api.delete(client, paths))
        except FileNotFoundError:
            # Some servers say so of the first one that is not there.
            for path in paths if len(paths) > 1 else ():
                self._delete([path])

    def ask(self, what: str, act: Callable[[ModuleType, Any], Answer]) -> Answer:
        """Return what obstore answers, with the store's client. Raises FileNotFoundError, FileExistsError and
        ReplicationError."""
        global _process
        try:
            import obstore
        except ModuleNotFoundError as error:
            raise driver_is_missing(error, f"distributor.store: {self.url!r}") from error
        if _process not in (None, os.getpid()):
            raise InternalError("object storage is asked in a process that was forked from one that has asked it")
        _process = os.getpid()
        try:
            client = _client(self)
        except (obstore.exceptions.BaseError, OSError, ValueError):
            # Its text may have a key.
            raise ConfigurationError(
                f"distributor.store: {self.url!r}: {self._who} is not usable for it",
                remedy="correct the store's path, or the connection's login, password and extra",
            ) from None
        try:
            return act(obstore, client)
        except (obstore.exceptions.BaseError, OSError) as error:
            # Its text is long, and may have a signed URL.
            if isinstance(error, obstore.exceptions.AlreadyExistsError):
                raise FileExistsError(f"it is in {self.url}") from None
            is_missing = isinstance(error, FileNotFoundError) and _is_missing(what, str(error))
            raise self._error(what, str(error), is_missing) from None

    @property
    def _who(self) -> str:
        return (
            "the machine's own identity" if self.connection is None else f"connection {self.connection.connection_id}"
        )

    def _error(self, what: str, text: str, is_missing: bool) -> Exception:
        bucket = urlsplit(self.url).netloc
        said = f"{self.url} cannot be asked to {what}: {_shown(text)}"
        if _NO_BUCKET.search(text):
            return ConfigurationError(
                f"distributor.store: {self.url!r}: there is no bucket {bucket}",
                remedy="make the bucket, or correct distributor.store and the connection's endpoint",
            )
        if is_missing:
            return FileNotFoundError(f"it is not in {self.url}")
        if _NO_IDENTITY.search(text):
            return ConfigurationError(
                f"distributor.store: {self.url!r}: the machine has no identity of its own there",
                remedy="distributor.store_connection names a connection with keys",
            )
        if _REFUSED.search(text):
            return ConfigurationError(
                f"distributor.store: {said}",
                remedy=f"let {self._who} read, write, list and delete there",
            )
        if _MISTAKEN.search(text):
            return ConfigurationError(
                f"distributor.store: {said}", remedy=f"correct region and endpoint of {self._who}"
            )
        return TransientError(f"store: {said}", remedy="run again; where it stays so, look at the server")


def _is_missing(what: str, text: str) -> bool:
    """Return whether a 404 is the store's own word of a file: it may be that of an upload, or of a proxy before it."""
    return what == "delete" or (what == "read" and _GONE.search(text) is not None)


def _shown(text: str) -> str:
    """Return what the server said, without addresses."""
    if (said := _SAID.search(text)) is not None:
        return f"{said['code']}: {said['message'].partition(chr(10))[0]}".rstrip(".: ")
    status = _STATUS.search(text)
    return "it gives no answer" if status is None else next(filter(None, status.groups()))


class _NewFile:
    def __init__(self, store: ObjectStore, path: str) -> None:
        self._store = store
        self._writer: Any = store.ask(
            "write", lambda api, client: api.open_writer(client, path, buffer_size=_PART_BYTES)
        )
        self.closed = False

    def write(self, data: bytes, /) -> int:
        self._store.ask("write", lambda *_: self._writer.write(data))
        return len(data)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True
        self._store.ask("write", lambda *_: self._writer.close())

    def abandon(self) -> None:
        self.closed = True
        with suppress(Exception):
            self._writer.__exit__(InternalError, InternalError("abandoned"), None)


class _ReadFile(io.RawIOBase):
    def __init__(self, store: ObjectStore, reader: Any) -> None:
        self._store = store
        self._reader = reader

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        return self._store.ask("read", lambda *_: bytes(self._reader.read(size)))

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._store.ask("read", lambda *_: int(self._reader.seek(offset, whence)))

    def tell(self) -> int:
        return int(self._reader.tell())


@lru_cache(maxsize=16)
def _client(store: ObjectStore) -> Any:
    """Return the client of a store, which is kept for this process."""
    from obstore.store import AzureStore, GCSStore, S3Store

    parts, it = urlsplit(store.url), store.connection
    options = {} if it is None else _options(parts.scheme, it)
    settings: dict[str, Any] = {
        "prefix": parts.path.strip("/") or None,
        "retry_config": _TRIES,
        "client_options": dict(_WAITING),
    }
    given: dict[str, Any]
    endpoint = None if it is None else _endpoint(parts.scheme, it)
    if endpoint is not None and endpoint.startswith("http:"):
        settings["client_options"]["allow_http"] = True
    if parts.scheme == "s3":
        given = {"endpoint": endpoint, "region": options.get("region_name"), "credential_provider": _keys(it, options)}
        return S3Store(parts.netloc, **settings, **_given(given))
    if parts.scheme == "gs":
        key, path = options.get("keyfile_dict"), options.get("key_path")
        given = {"base_url": endpoint, "service_account_key": key, "service_account": path}
        return GCSStore(parts.netloc, **settings, **_given(given))
    account = None if it is None else it.login
    given = {"account_name": account, "endpoint": endpoint, "credential_provider": _azure_key(it, options)}
    return AzureStore(parts.netloc, **settings, **_given(given))


def _options(scheme: str, connection: Connection) -> Mapping[str, str]:
    """Return what its extra asks for. Raises ConfigurationError where that is not of use to the store."""
    where = f"distributor.store_connection: connection {connection.connection_id!r}"
    if connection.kind != KINDS[scheme]:
        raise ConfigurationError(
            f"{where} is of type {connection.kind!r}", remedy=f"allowed for {scheme}://: {KINDS[scheme]}"
        )
    options = used(connection.options)
    unknown = sorted(options.keys() - set(_USED_OPTIONS[scheme]))
    if unknown:
        raise ConfigurationError(
            f"{where}: of its extra is not used: {', '.join(unknown)}",
            remedy=f"allowed there: {', '.join(_USED_OPTIONS[scheme])}; without keys it is the machine's own identity",
        )
    if _ENDPOINT.fullmatch(_endpoint(scheme, connection) or "https://none") is None:
        what = "host" if scheme == "az" else "endpoint_url"
        raise ConfigurationError(f"{where}: its {what} is no address", remedy="allowed: https://host:port")
    return options


def _endpoint(scheme: str, connection: Connection) -> str | None:
    """Return the address of a server that is not the one of the store's kind."""
    return connection.host if scheme == "az" else used(connection.options).get("endpoint_url")


def _keys(connection: Connection | None, options: Mapping[str, str]) -> Callable[[], Any] | None:
    """Return what gives the connection's keys: so none of the environment's is used beside them."""
    if connection is None:
        return None
    key, secret = connection.login or options.get(_KEY_OPTIONS[0]), connection.password or options.get(_KEY_OPTIONS[1])
    if bool(key) != bool(secret):
        raise ConfigurationError(
            f"distributor.store_connection: connection {connection.connection_id!r} has half of a pair of keys",
            remedy="give it login and password, or neither for the machine's own identity",
        )
    if not key:
        return None
    token = options.get("aws_session_token")
    keys = {"access_key_id": key, "secret_access_key": secret, "expires_at": None}
    return lambda: keys if token is None else keys | {"token": token}


def _azure_key(connection: Connection | None, options: Mapping[str, str]) -> Callable[[], Any] | None:
    """Return what gives the connection's key or token, as `_keys` does. Raises ValueError where it is none."""
    if key := (connection and connection.password) or options.get("account_key"):
        base64.b64decode(key, validate=True)
        return lambda: {"access_key": key, "expires_at": None}
    if token := options.get("sas_token"):
        pairs = parse_qsl(token.removeprefix("?"), strict_parsing=True)
        return lambda: {"sas_token": pairs, "expires_at": None}
    return None


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value}
