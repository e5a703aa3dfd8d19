"""A publication's notifiers, tried without an alert or by one. `python -m tranrepl_airflow.alert_trials` is how the
shell asks for it, where Airflow is."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import cast

from airflow.sdk.log import redact  # type: ignore[attr-defined]

from tranrepl.admin.alert_trials import TRIALS, AlertTrial
from tranrepl.printable import one_line
from tranrepl.settings.alert import Alert
from tranrepl.settings.publication import Publication
from tranrepl.spark.spark_submit import write_private
from tranrepl_airflow.alerts import trial_alert
from tranrepl_airflow.notifiers import new_notifier, notify


def tried(publication: Publication) -> list[AlertTrial]:
    """Ask what each notifier sends to, without an alert."""
    return [_trial(number, alert, partial(_asked, alert)) for number, alert in enumerate(publication.alerts)]


def sent(publication: Publication) -> list[AlertTrial]:
    """Send one test alert through each notifier, at any level."""
    fields = trial_alert(publication.publication)

    def send(alert: Alert) -> str:
        notify(alert, fields, {})
        return "the test alert was sent"

    return [_trial(number, alert, partial(send, alert)) for number, alert in enumerate(publication.alerts)]


def _asked(alert: Alert) -> str:
    notifier = new_notifier(alert)
    try_out = cast("Callable[[], str] | None", getattr(notifier, "try_out", None))
    if try_out is not None:
        return try_out()
    test = getattr(getattr(notifier, "hook", None), "test_connection", None)
    if test is None:
        return "it can be imported; `tranrepl alert FILE --test` shows whether it sends"
    works, said = test()
    if not works:
        raise RuntimeError(said)
    return f"its connection was tested, and no alert was sent: {said}"


def _trial(number: int, alert: Alert, attempt: Callable[[], str]) -> AlertTrial:
    name = f"{number + 1}, {alert.notifier}"
    try:
        return AlertTrial(notifier=name, said=one_line(attempt()), failed=False)
    except Exception as error:  # noqa: BLE001 - a notifier may be anybody's
        return AlertTrial(notifier=name, said=one_line(str(redact(f"{type(error).__name__}: {error}"))), failed=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Read a publication, and write what became of its notifiers."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("publication", type=Path)
    parser.add_argument("trials", type=Path)
    parser.add_argument("--send", action="store_true")
    options = parser.parse_args(arguments)
    publication = Publication.model_validate_json(options.publication.read_bytes())
    found = sent(publication) if options.send else tried(publication)
    write_private(options.trials, TRIALS.dump_json(found).decode())


if __name__ == "__main__":
    main()
