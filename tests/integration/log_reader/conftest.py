"""What tests of changed tables share."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.databases import Databases
from support.site import Site
from support.vendor_site import begun, vendor_site


@pytest.fixture
def ends(databases: DatabasesFactory) -> Databases:
    return databases()


@pytest.fixture
def site(ends: Databases, tmp_path: Path) -> Site:
    """Return a site with twenty vendors at both ends, and changes after them."""
    return begun(vendor_site(ends, tmp_path))
