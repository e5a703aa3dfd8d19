"""How many cores a local master has, and needs."""

from __future__ import annotations

import os
import re

from tranrepl.settings.publication import Publication

_LOCAL = re.compile(r"local(\[(?P<cores>\*|[0-9]+)\])?")


def with_cores_for_agents(master: str, publication: Publication) -> str:
    """Return the master, where it is a local one with cores enough for agents that stay up: one for the log reader, one
    for each stream of a delivery, and one for what else there is to do. They are threads, which mostly wait."""
    local = _LOCAL.fullmatch(master)
    if local is None:
        return master
    asked = local["cores"] or "1"
    cores = (os.cpu_count() or 1) if asked == "*" else int(asked)
    needed = 2 + sum(it.subscription_streams for it in publication.subscriptions)
    return f"local[{max(cores, needed)}]"
