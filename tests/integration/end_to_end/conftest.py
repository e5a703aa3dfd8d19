"""What tests of a change's whole way share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.article_styles import SiteFactory, styled_site
from support.observed import TRANSACTIONS_MADE, audited_site, make_transactions
from support.site import Site


@pytest.fixture
def site_of(databases: DatabasesFactory, tmp_path: Path) -> SiteFactory:
    """Return a factory of sites whose articles have one style."""

    def create(*articles: Mapping[str, object] | str, style: str = "procedures") -> Site:
        return styled_site(databases(), tmp_path, *articles, style=style)

    return create


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path) -> Site:
    """Return a publication that is audited at both ends, with transactions that no job has read."""
    site = audited_site(databases(), tmp_path / "store")
    make_transactions(site, TRANSACTIONS_MADE)
    return site
