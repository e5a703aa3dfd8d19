"""Which kind of command store a URL names."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from tranrepl.distributor.command_store import CommandStore
from tranrepl.distributor.mounted_store import MountedStore
from tranrepl.errors import ConfigurationError


def store_at(url: str) -> CommandStore:
    """Return the store. Raises ConfigurationError where there is none of the kind."""
    parts = urlsplit(url)
    if parts.scheme == "":
        return MountedStore(url, Path(url))
    if parts.scheme == "file":
        return MountedStore(url, Path(unquote(parts.path)))
    raise ConfigurationError(
        f"distributor.store: {url!r}: no store is at {parts.scheme}://",
        remedy="allowed: an absolute path that every Spark worker mounts",
    )
