"""Options of statements (SQLAlchemy's execution options) by which a database knows what they do."""

from __future__ import annotations

CALLS_PROCEDURE = "tranrepl_calls_procedure"
"""True: it calls a procedure, which may answer with rows of its own and with messages."""
SETS_IDENTITY = "tranrepl_sets_identity"
"""Schema and name of a table: it inserts values of an identity column there."""
