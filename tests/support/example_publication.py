"""A publication's settings with every key that most tests vary."""

from __future__ import annotations

from typing import Any

EXAMPLE: dict[str, Any] = {
    "publication": "purchasing",
    "publisher": {"connection": "publisher"},
    "distributor": {"connection": "distribution", "store": "/var/lib/tranrepl/purchasing"},
    "schedule": "*/5 * * * *",
    "articles": [
        {
            "source": "purchasing.vendor",
            "destination": 'reporting."Vendor list"',
            "columns": ["vendor_id", "name"],
            "ins_cmd": "CALL",
            "upd_cmd": "SCALL",
            "del_cmd": "SQL",
            "replica_identity": "default",
        },
        {"source": "purchasing.orders"},
    ],
    "subscriptions": [
        {"name": "reporting", "connection": "subscriber", "commit_batch_size": 10, "commit_batch_threshold": 20}
    ],
    "log_reader": {"read_batch_size": 1000, "read_batch_bytes": 1_000_000},
    "alerts": [{"notifier": "tranrepl_airflow.webhook.WebhookNotifier", "arguments": {"connection": "pager"}}],
    "latency_threshold": 900,
}
