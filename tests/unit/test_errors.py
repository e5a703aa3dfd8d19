"""Errors keep their class and all that they say across a process border."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from tranrepl import errors
from tranrepl.errors import ErrorReport, ReplicationError

CLASSES: list[type[ReplicationError]] = [
    errors.TransientError,
    errors.DataError,
    errors.ConfigurationError,
    errors.FencedError,
    errors.InternalError,
]
_optional_text = st.none() | st.text()


@given(
    st.sampled_from(CLASSES),
    st.text(),
    _optional_text,
    _optional_text,
    _optional_text,
    st.none() | st.integers(1),
    _optional_text,
)
def test_an_error_survives_its_report(
    error_class: type[ReplicationError],
    message: str,
    remedy: str | None,
    number: str | None,
    xact_seqno: str | None,
    command_id: int | None,
    article: str | None,
) -> None:
    error = error_class(
        message, remedy=remedy, number=number, xact_seqno=xact_seqno, command_id=command_id, article=article
    )
    again = ErrorReport.model_validate_json(error.report.model_dump_json()).to_exception()
    assert type(again) is error_class
    assert vars(again) == vars(error)


def test_every_kind_has_a_class_of_its_own() -> None:
    assert {error_class.kind for error_class in CLASSES} == set(errors.ErrorKind)


@pytest.mark.parametrize(("remedy", "text"), [(None, "it broke"), ("mend it", "it broke\nmend it")])
def test_an_error_reads_as_message_and_remedy(remedy: str | None, text: str) -> None:
    assert str(errors.DataError("it broke", remedy=remedy)) == text
