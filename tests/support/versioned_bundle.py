"""A DAG bundle of Airflow's with versions: a folder for each, as a Git repository's bundle checks them out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.dag_processing.bundles.base import BaseDagBundle


class VersionedBundle(BaseDagBundle):
    """`root` has a folder for each version; without a version, the last one by name is meant."""

    supports_versioning = True

    def __init__(self, *, root: str, **settings: Any) -> None:
        super().__init__(**settings)
        self._root = Path(root)

    @property
    def path(self) -> Path:
        return self._root / (self.version or self.get_current_version())

    def get_current_version(self) -> str:
        return max(it.name for it in self._root.iterdir())

    def refresh(self) -> None:
        """Do nothing: the folders are read where they are."""
