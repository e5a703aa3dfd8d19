"""Where a publication's servers are."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from tranrepl.connections import Connection
from tranrepl.errors import ConfigurationError
from tranrepl.settings.publication import Publication
from tranrepl.subscriber.subscription import SubscriptionKey
from tranrepl.topology import Topology


@pytest.fixture
def topology() -> Topology:
    publication = Publication.model_validate(
        {
            "publication": "purchasing",
            "publisher": {"connection": "shop"},
            "distributor": {"connection": "distribution", "store": "/store"},
            "articles": [{"source": "public.item"}],
            "subscriptions": [
                {"name": "reporting", "connection": "warehouse"},
                {"name": "archive", "connection": "files"},
            ],
        }
    )
    kinds = {"shop": "postgres", "distribution": "postgres", "warehouse": "mariadb", "files": "sqlite"}
    connections = {
        name: Connection(name, kind, host=f"{name}.example", port=1, database=f"{name}_db")
        for name, kind in kinds.items()
    }
    return Topology(publication, connections)


def test_each_end_is_found_by_the_connection_that_the_settings_name(topology: Topology) -> None:
    assert topology.publisher_connection.connection_id == "shop"
    assert topology.distributor_connection.connection_id == "distribution"
    assert topology.subscriber_connection("archive").connection_id == "files"
    assert [topology.dialect(name).capabilities.title for name in ("reporting", "archive")] == ["MariaDB", "SQLite"]


def test_options_that_are_not_used_are_named_once_with_the_reason(topology: Topology) -> None:
    options = {"shop": {"cursor": "dictcursor", "sslmode": "require"}, "warehouse": {"charset": "utf8", "iam": "true"}}
    given = {name: replace(it, options=options.get(name, {})) for name, it in topology.connections.items()}
    assert replace(topology, connections=given).unused_options() == [
        "connection shop: of its extra is not used: cursor (Airflow's hook has it for itself)",
        (
            "connection warehouse: of its extra is not used: charset (tranrepl's sessions set it themselves); "
            "iam (no token is fetched: give the connection a login and a password of the database)"
        ),
    ]


def test_a_subscription_is_known_by_the_publishers_server(topology: Topology) -> None:
    key = topology.subscription_key("reporting", "7000000000000000001")
    assert key == SubscriptionKey("shop.example:1", "7000000000000000001", "shop_db", "purchasing", "reporting")
    assert topology.subscription_key("reporting", None).publisher_system == ""


def test_a_subscription_that_is_not_in_the_file_is_refused(topology: Topology) -> None:
    with pytest.raises(ConfigurationError, match="has no subscription 'other'"):
        topology.subscriber("other", None, "test")


def test_a_delivery_does_not_load_the_publishers_modules() -> None:
    program = "import sys, tranrepl.distribution.without_spark; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    assert "tranrepl.topology" in loaded
    assert [it for it in loaded if it.startswith("tranrepl.publisher.postgres")] == []
