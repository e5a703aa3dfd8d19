"""LSNs as text."""

from __future__ import annotations

import pytest

from tranrepl.publisher.postgres.lsn import LsnPositions, lsn_of


@pytest.mark.parametrize(("text", "number"), [("0/1", 1), ("16/B374D848", 0x16_B374_D848), ("a/b", 0xA_0000_000B)])
def test_an_lsn_is_read(text: str, number: int) -> None:
    assert lsn_of(LsnPositions().parse(text)) == number


@pytest.mark.parametrize(
    "text", ["", "yesterday", "16", "16/", "/1", "16/B374D8480", "16/0x1", "16/1 ", "-1/1", "mysql-bin.000001:4"]
)
def test_what_is_no_lsn_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"^allowed: an LSN, as in 16/B374D848$"):
        LsnPositions().parse(text)
