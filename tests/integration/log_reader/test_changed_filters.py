"""A row filter that changes: the rows that it moves come and go, by a snapshot or after a validation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from support.databases import Databases
from support.equality import differing_rows
from support.site import Site
from support.vendor_site import AUTOMATIC, BY_HAND, OTHER, VENDOR, VENDOR_ROWS, begun, vendor_site, waits_for_snapshot
from support.whole_run import good_run, whole_run
from tranrepl.errors import ConfigurationError
from tranrepl.jobs.requests import Repair


@pytest.mark.slow_after(3)
@pytest.mark.parametrize("command", ["truncate", "delete"])
@pytest.mark.parametrize("changed", [["rating > 5"], [None], ["rating > 15"], ["rating > 15", "rating < 3"]])
def test_a_changed_filter_inserts_and_deletes_the_rows_it_moves(
    ends: Databases, tmp_path: Path, changed: Sequence[str | None], command: str
) -> None:
    site = vendor_site(ends, tmp_path, pre_creation_cmd=command, filter="rating > 10")
    site.at_publisher(VENDOR, OTHER, VENDOR_ROWS)
    site.set_up()
    good_run(site)
    assert site.at_subscriber("SELECT count(*) FROM vendor") == [(10,)]
    for condition in changed:
        filtered: dict[str, Any] = {} if condition is None else {"filter": condition}
        site = vendor_site(ends, tmp_path, pre_creation_cmd=command, **filtered)
        assert site.set_up()
    good_run(site)
    wanted = site.at_publisher(f"SELECT * FROM vendor WHERE {changed[-1] or 'true'} ORDER BY 1")
    assert site.at_subscriber("SELECT * FROM vendor ORDER BY 1") == wanted


def test_a_protected_destination_is_refused_before_anything_changes(ends: Databases, tmp_path: Path) -> None:
    site = begun(vendor_site(ends, tmp_path, pre_creation_cmd="none"))
    changed = vendor_site(ends, tmp_path, pre_creation_cmd="none", filter="rating > 5")
    with pytest.raises(ConfigurationError, match="holds rows") as refused:
        changed.set_up()
    assert "pre_creation_cmd for this article into the file: delete, truncate or drop" in (
        refused.value.report.remedy or ""
    )
    assert not waits_for_snapshot(site)
    site.at_publisher("UPDATE vendor SET name = 'goes on'")
    good_run(site)
    assert differing_rows(site) == {}
    chosen = vendor_site(ends, tmp_path, pre_creation_cmd="truncate", filter="rating > 5")
    chosen.set_up()
    good_run(chosen)
    assert site.at_subscriber("SELECT count(*) FROM vendor") == [(15,)]


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("subscription", "article"),
    [(BY_HAND, {}), (AUTOMATIC, {"on_unknown_rows": "stop"})],
    ids=["takes no snapshots", "on_unknown_rows: stop"],
)
def test_without_a_snapshot_a_subscription_stops_until_validated(
    ends: Databases, tmp_path: Path, subscription: Mapping[str, object], article: Mapping[str, object]
) -> None:
    site = begun(vendor_site(ends, tmp_path, subscription, **article))
    wider = vendor_site(ends, tmp_path, subscription, **article, filter="rating > 5")
    site.at_publisher("UPDATE other SET name = 'after'")
    wider.set_up()
    results = whole_run(wider)
    stopped = "is stopped until its rows are validated or copied: its row filter changed"
    assert any(stopped in it for it in results["log reader"].notices)
    assert results["reporting"].error is not None
    assert results["reporting"].error.number == "21074"
    assert "tranrepl validate FILE -s reporting --article public.vendor --repair" in (
        results["reporting"].error.remedy or ""
    )
    assert site.at_subscriber("SELECT name FROM other") == [("one",)]
    # It stays stopped as long as rows differ.
    assert wider.validate().error is not None
    assert whole_run(wider)["reporting"].error is not None
    repaired = wider.validate(articles=("public.vendor",), repair=Repair.APPLY)
    repaired.raise_error()
    assert any("its delivery resumes" in it for it in repaired.notices)
    good_run(wider)
    assert site.at_subscriber("SELECT * FROM vendor ORDER BY 1") == site.at_publisher(
        "SELECT * FROM vendor WHERE rating > 5 ORDER BY 1"
    )
    assert site.at_subscriber("SELECT name FROM other") == [("after",)]


def test_validation_works_before_the_snapshot_and_says_what_waits(site: Site, ends: Databases, tmp_path: Path) -> None:
    wider = vendor_site(ends, tmp_path, filter="rating > 5")
    wider.set_up()
    wider.read_log().raise_error()
    site.at_subscriber("UPDATE other SET name = 'wrong'")
    site.at_publisher("INSERT INTO other VALUES (2, 'two')", "UPDATE vendor SET name = 'left out'")
    result = wider.validate()
    assert result.validation is not None, result.error
    assert [(it.article, it.different, it.missing) for it in result.validation.articles] == [("public.other", 1, 0)]
    assert "article public.vendor still waits for its snapshot, and was not compared" in result.notices
    wider.validate(repair=Repair.APPLY).raise_error()
    alone = wider.validate(articles=("public.vendor",))
    assert alone.error is None
    assert "article public.vendor still waits for its snapshot, and was not compared" in alone.notices
    good_run(wider)
    assert site.at_subscriber("SELECT count(*) FROM vendor") == [(15,)]
