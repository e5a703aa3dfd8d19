"""One publication in full, as Replication Monitor shows it: a few queries for each part, at any size.

No server but the distribution database is asked: a Subscriber's watermark is the one that its last run recorded.
"""

from __future__ import annotations
