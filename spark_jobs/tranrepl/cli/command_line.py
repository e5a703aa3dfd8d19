"""The entry of the `tranrepl` command."""

from __future__ import annotations

import sys

from tranrepl.cli.completion import offered_without_verbs
from tranrepl.garbage_collection import look_seldom


def main() -> None:
    """Answer a shell that completes a word, where that takes no more than the file; else run the command."""
    offered = offered_without_verbs()
    if offered is not None:
        sys.stdout.write("\n".join(offered))
        return
    look_seldom()
    # It imports what the verbs work with, which takes longer than anybody waits for a Tab.
    from tranrepl.cli.verbs import app
    from tranrepl.spark.without_pandas import leave_pandas_out

    leave_pandas_out()
    app()
