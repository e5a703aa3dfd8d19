"""Statements about a role that a person is to run."""

from __future__ import annotations

import pytest

from tranrepl.postgres.rights import quoted_role
from tranrepl.publisher.postgres.replication_session import right_to_read


@pytest.mark.parametrize(
    ("role", "quoted"),
    [("reader", '"reader"'), ('o"neil', '"o""neil"'), ("50% off", '"50% off"'), (None, "CURRENT_USER")],
)
def test_a_role_is_quoted_whatever_its_name(role: str | None, quoted: str) -> None:
    assert quoted_role(role) == quoted
    assert right_to_read(role).startswith(f"ALTER ROLE {quoted} REPLICATION; ")
    assert f"GRANT rds_replication TO {quoted} (" in right_to_read(role)
