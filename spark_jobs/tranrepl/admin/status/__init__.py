"""`tranrepl status`: where the log reader and every subscription stand, whichever server gives no answer."""

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
