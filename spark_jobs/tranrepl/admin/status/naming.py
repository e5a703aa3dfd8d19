"""The commands in a status' texts, with the names that they are pasted with."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel

from tranrepl.admin.status.report import PublicationStatus
from tranrepl.next_steps import Place, named

Part = TypeVar("Part", bound=BaseModel)


def with_names(status: PublicationStatus, settings_file: str) -> PublicationStatus:
    """Return the status whose texts' commands name the settings file, and the subscription that they are about."""
    file = Place(settings_file)
    problem = status.distributor_problem
    return status.model_copy(
        update={
            "distributor_problem": None if problem is None else named(problem, file),
            "log_reader": _with_names(status.log_reader, file),
            "subscriptions": [_with_names(it, Place(settings_file, it.subscription)) for it in status.subscriptions],
        }
    )


def _with_names(part: Part, place: Place) -> Part:
    return type(part).model_validate(_in_texts(part.model_dump(), place))


def _in_texts(value: object, place: Place) -> object:
    if isinstance(value, str):
        return named(value, place)
    if isinstance(value, dict):
        return {name: _in_texts(it, place) for name, it in value.items()}
    if isinstance(value, list):
        return [_in_texts(it, place) for it in value]
    return value
