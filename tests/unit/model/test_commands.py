"""The command strings of an article."""

from __future__ import annotations

import pytest

from tranrepl.model.commands import CallSyntax, Method, Propagation


@pytest.mark.parametrize(
    ("propagation", "text"),
    [
        (Propagation(Method.PROCEDURE, CallSyntax.SCALL), "SCALL"),
        (Propagation(Method.PROCEDURE, CallSyntax.CALL, "audit_delete"), "CALL audit_delete"),
        (Propagation(Method.STATEMENT), "SQL"),
        (Propagation(Method.NONE), "NONE"),
    ],
)
def test_a_propagation_reads_as_its_command_string(propagation: Propagation, text: str) -> None:
    assert str(propagation) == text
