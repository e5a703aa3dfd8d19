"""What tasks about one publication have in common that start no Spark job, and the files that their DAGs are of."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator

from tranrepl.errors import ConfigurationError
from tranrepl.next_steps import usual_file
from tranrepl.settings.loading import load_publication
from tranrepl.settings.publication import Publication
from tranrepl_airflow.outcome import RetryWhatMayPass


def usable_publication(path: Path) -> Publication | None:
    """Return the publication of a settings file; None where the file cannot be used: the publication's own DAG says
    so."""
    try:
        publication = load_publication(path)
    except ConfigurationError:
        return None
    return publication if publication.publication == path.stem else None


class PublicationOperator(BaseOperator):
    """A task about one publication. `publication` is `Publication.model_dump(mode="json")`.

    What may pass by itself is tried again, configuration errors are not.
    """

    def __init__(self, *, publication: Mapping[str, Any], settings_file: str | None = None, **kwargs: Any) -> None:
        kwargs.setdefault("retry_policy", RetryWhatMayPass())
        super().__init__(**kwargs)
        self.publication = publication
        self.settings_file = settings_file or usual_file(publication["publication"])
