"""Whether a connection that a server refuses may come about later."""

from __future__ import annotations

import pytest

from tranrepl.postgres.session import refused_for_good


@pytest.mark.parametrize(
    ("text", "for_good"),
    [
        ('connection failed: FATAL:  password authentication failed for user "u"', True),
        ('connection failed: FATAL:  database "d" does not exist', True),
        ("connection failed: FATAL:  the database system is starting up", False),
        ("connection failed: FATAL:  the database system is shutting down", False),
        ("connection failed: FATAL:  the database system is not yet accepting connections", False),
        ("connection failed: FATAL:  sorry, too many clients already", False),
        ("connection failed: FATAL:  terminating connection due to unexpected postmaster exit", False),
        ("connection failed: Connection refused", False),
        ("host: db1: Connection refused - host: db2: session is read-only", False),
    ],
)
def test_a_server_that_is_starting_ending_or_full_may_be_asked_again(text: str, for_good: bool) -> None:
    assert refused_for_good(text) is for_good
