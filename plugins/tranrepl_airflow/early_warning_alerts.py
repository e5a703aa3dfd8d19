"""The alert of what will hurt if nobody looks, each once while it stands. The log reader's task asks for it, and
clean-up's, which runs also where the publication does not."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from tranrepl.errors import ReplicationError
from tranrepl.next_steps import Place, named
from tranrepl.printable import one_event
from tranrepl.settings.publication import Publication
from tranrepl_airflow.alerts import AlertEvent, AlertFields, notify_all, run_id_of
from tranrepl_airflow.job_connections import resolve_connections

if TYPE_CHECKING:
    from tranrepl.admin.early_warnings import EarlyWarning

log = logging.getLogger(__name__)

_LOOKED_EVERY_SECONDS = 60.0
_WAITED_SECONDS = 10.0
"""How long a look that is under way when the task ends is waited for."""


def alert_early(publication: Publication, place: Place, context: Mapping[str, Any]) -> None:
    """Tell every notifier what should be warned of. Raises nothing: the task has done its work."""
    if not publication.alerts:
        return
    try:
        found = _new_warnings(publication)
    except ReplicationError as error:
        log.warning("Early warnings were not looked for: %s", one_event(error.message))
    except Exception:
        log.exception("Early warnings were not looked for")
    else:
        for it in found:
            notify_all(publication.alerts, _fields(publication.publication, place, it, context), context)


@contextmanager
def looking_for_early_warnings(publication: Publication, place: Place, context: Mapping[str, Any]) -> Iterator[None]:
    """Tell every notifier once a minute what should be warned of, meanwhile. Raises nothing."""
    over = Event()

    def look() -> None:
        while not over.wait(_LOOKED_EVERY_SECONDS):
            alert_early(publication, place, context)

    if not publication.alerts:
        yield
        return
    thread = Thread(target=look, name="tranrepl-early-warnings", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(_WAITED_SECONDS)


def _new_warnings(publication: Publication) -> list[EarlyWarning]:
    # Imported here: parsing a DAG file loads no database driver.
    from tranrepl.admin.early_warnings import new_early_warnings
    from tranrepl.topology import Topology

    ends = [publication.publisher.connection, publication.distributor.connection]
    return new_early_warnings(Topology(publication, resolve_connections(ends).by_id))


def _fields(publication: str, place: Place, warning: EarlyWarning, context: Mapping[str, Any]) -> AlertFields:
    where = "/".join(filter(None, [publication, warning.subscription]))
    return AlertFields(
        event=AlertEvent.EARLY_WARNING,
        summary=f"{where}: {warning.kind}",
        publication=publication,
        subscription=warning.subscription,
        number=warning.kind.number,
        text=warning.text,
        remedy=named(warning.remedy, place),
        run_id=run_id_of(context),
        level=AlertEvent.EARLY_WARNING.level,
    )
