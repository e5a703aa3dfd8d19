"""Options of the session that applies commands at a Subscriber, and what came of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tranrepl.settings.publication import Apply


@dataclass(frozen=True, slots=True)
class ApplierOptions:
    """The options of an applier's session."""

    not_for_replication: bool = False
    """Foreign keys and ordinary triggers do not act on what it applies."""
    lock_timeout_seconds: float | None = None
    """How long a statement waits for a lock; None: as long as the server's settings say."""
    skip_errors: frozenset[str] = frozenset()
    """Numbers of data errors at which the failing command alone is left out."""
    apply: Apply = Apply.AUTO
    rows_are_copied: bool = False
    """The rows of tables whose schema it changes are copied again after it: those that do not fit may be deleted."""
    shared_tables: frozenset[str] = frozenset()
    """Articles, by source, whose tables keep rows of others then: nothing that does not fit is deleted there."""


AS_CONFIGURED = ApplierOptions()
"""What the server's own settings say."""


@dataclass(frozen=True, slots=True)
class Applied:
    """What applying commands came to, beside the rows."""

    in_bulk: int = 0
    """Commands that went in bulk; all others, serially."""
    fallbacks: Mapping[str, int] = field(default_factory=dict)
    """Why steps that were tried in bulk went serially after all, and how often."""
    stage_seconds: float = 0.0
