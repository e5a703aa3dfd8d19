"""`tranrepl status`: the state of the log reader and of every subscription, though a server gives no answer."""

from __future__ import annotations

from tranrepl.admin.status.publication import PATIENCE_SECONDS, status
from tranrepl.admin.status.report import (
    LastError,
    LastRun,
    LogReaderStatus,
    MeasuredLatency,
    PublicationStatus,
    SubscriptionStatus,
)

__all__ = [
    "PATIENCE_SECONDS",
    "LastError",
    "LastRun",
    "LogReaderStatus",
    "MeasuredLatency",
    "PublicationStatus",
    "SubscriptionStatus",
    "status",
]
