"""Tracer tokens arrive at Subscribers that are not PostgreSQL, with the commit that covers them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.observed import distribution_rows
from support.site import Site
from support.spark_here import SparkHere
from support.subscribers import STATEMENTS, Site as End
from tranrepl.admin.trace import post_token

_ARRIVED = (
    "SELECT token, publisher_commit <= distributor_commit AND distributor_commit <= subscriber_commit "
    "FROM mstracer_tokens JOIN mstracer_history ON parent_tracer_id = tracer_id ORDER BY tracer_id"
)


@pytest.mark.parametrize("kind", ["mariadb statements", "mssql statements"])
def test_tokens_arrive_alone_and_among_changes(
    kind: str, make_site: Callable[[str], End], databases: DatabasesFactory, tmp_path: Path
) -> None:
    end = make_site(kind)
    ends = replace(databases(), subscriber=replace(end.connection, connection_id="subscriber"))
    article = {"source": "public.t", "destination": f"{end.schema}.t", **STATEMENTS}
    site = Site(ends, tmp_path / "store", [article], SparkHere())
    site.at_publisher("CREATE TABLE t (id int PRIMARY KEY)")
    site.set_up()
    tokens = [post_token(site.topology)]
    site.run()
    assert distribution_rows(site, _ARRIVED) == [(it, True) for it in tokens]
    for row in (1, 2):
        site.at_publisher(f"INSERT INTO t VALUES ({row})")
        tokens.append(post_token(site.topology))
    site.run()
    assert distribution_rows(site, _ARRIVED) == [(it, True) for it in tokens]
    assert end.rows("t") == [(1,), (2,)]
