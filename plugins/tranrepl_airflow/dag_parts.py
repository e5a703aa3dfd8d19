"""A DAG and its tasks as Airflow's objects: what all of a publication's have in common, made once."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from copy import copy
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar, cast

from airflow.sdk import DAG, BaseOperator
from airflow.sdk.bases.timetable import BaseTimetable

START_DATE = datetime(2020, 1, 1, tzinfo=UTC)
"""Before any data there is: a backfill cannot reach further back than a DAG's start."""
RETRY_DELAY = timedelta(seconds=30)
_FROM_CONFIGURATION = ("max_active_tasks", "max_consecutive_failed_dag_runs", "disable_bundle_versioning")


class Tag(StrEnum):
    """What a DAG is for: one of its tags; another one is its publication."""

    REPLICATE = "replicate"
    VALIDATE = "validate"
    SET_UP = "set up"
    REINITIALIZE = "reinitialize"
    ADMINISTER = "administer"
    CLEAN_UP = "clean up"


_Operator = TypeVar("_Operator", bound=BaseOperator)
_made: dict[tuple[type[BaseOperator], frozenset[str]], tuple[BaseOperator, Sequence[str]]] = {}
"""The first task of an operator with arguments of these names, and which of its attributes hold what may be changed."""


def new_dag(dag_id: str, schedule: BaseTimetable | None, **fields: Any) -> DAG:
    """Return a DAG of which one run is active at a time, and none for intervals of the past."""
    return DAG(
        dag_id, schedule=schedule, start_date=START_DATE, catchup=False, max_active_runs=1, **_configured(), **fields
    )


def new_task(operator: type[_Operator], **fields: Any) -> _Operator:
    """Return `operator(**fields)`, where each argument is an attribute of the same name from which nothing else is
    derived.

    Airflow takes far longer to construct a task than to copy one, and hundreds of publications have thousands of the
    same few.
    """
    kind = operator, frozenset(fields)
    if kind not in _made:
        made = operator(**fields)
        _made[kind] = made, [name for name, it in vars(made).items() if isinstance(it, MutableMapping | list | set)]
    first, changeable = _made[kind]
    task = cast("_Operator", copy(first))
    attributes = vars(task)
    attributes.update({name: copy(attributes[name]) for name in changeable})
    for name, value in fields.items():
        setattr(task, name, value)
    return task


@cache
def _configured() -> Mapping[str, Any]:
    """Return what Airflow would look up in its configuration for each DAG."""
    any_dag = DAG("any", schedule=None)
    return {name: getattr(any_dag, name) for name in _FROM_CONFIGURATION}
