"""Which kind of command store a URL names."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tranrepl.connections import Connection
from tranrepl.distributor.command_store import CommandStore
from tranrepl.distributor.mounted_store import MountedStore
from tranrepl.distributor.object_store import KINDS, ObjectStore
from tranrepl.errors import ConfigurationError

_BUCKET = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)


def store_at(url: str, connection: Connection | None = None) -> CommandStore:
    """Return the store, which object storage is asked for by a connection, or by the machine's own identity. Raises
    ConfigurationError where there is none of the kind."""
    parts = urlsplit(url)
    if parts.scheme == "":
        return MountedStore(url, Path(url))
    if "?" in url or "#" in url:
        raise ConfigurationError(
            f"distributor.store: {parts.scheme}://: its URL has a query or a fragment, which nothing would read",
            remedy="leave ? and # and what follows out; options are the extra of the connection that "
            "distributor.store_connection names",
        )
    if parts.scheme == "file":
        return MountedStore(url, Path(unquote(parts.path)))
    if "@" in parts.netloc:
        raise ConfigurationError(
            f"distributor.store: {parts.scheme}://: its URL has a login in it",
            remedy="keys are those of the connection that distributor.store_connection names",
        )
    if parts.scheme in KINDS and _BUCKET.fullmatch(parts.netloc):
        return ObjectStore(url, connection)
    what = "it names no bucket" if parts.scheme in KINDS else f"no store is at {parts.scheme}://"
    raise ConfigurationError(
        f"distributor.store: {url!r}: {what}",
        remedy="allowed: an absolute path that every Spark worker mounts, s3://bucket/path, gs://bucket/path, "
        "az://container/path",
    )
