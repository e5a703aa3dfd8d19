"""What tasks about one publication have in common that start no Spark job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk import BaseOperator

from tranrepl.next_steps import usual_file
from tranrepl_airflow.outcome import RetryWhatMayPass


class PublicationOperator(BaseOperator):
    """A task about one publication. `publication` is `Publication.model_dump(mode="json")`.

    What may pass by itself is tried again, configuration errors are not.
    """

    def __init__(self, *, publication: Mapping[str, Any], settings_file: str | None = None, **kwargs: Any) -> None:
        kwargs.setdefault("retry_policy", RetryWhatMayPass())
        super().__init__(**kwargs)
        self.publication = publication
        self.settings_file = settings_file or usual_file(publication["publication"])
