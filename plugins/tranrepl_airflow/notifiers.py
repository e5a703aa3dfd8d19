"""A publication's notifiers: made of its settings, and sent alerts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from importlib import import_module
from typing import Any, cast

from airflow.sdk import BaseNotifier

from tranrepl.errors import ConfigurationError
from tranrepl.printable import printable
from tranrepl.settings.alert import Alert, AlertLevel
from tranrepl_airflow.alerts import AlertFields

log = logging.getLogger(__name__)

_LEVELS = tuple(AlertLevel)
"""The least first."""


def notify(alert: Alert, fields: AlertFields, context: Mapping[str, Any]) -> None:
    """Send an alert to one notifier, whose templates find the fields as `alert`, unless it takes only what asks more
    of a person. Raises what the notifier raises.

    Values are put into the templates and never taken for templates themselves: the notifier renders its arguments
    once.
    """
    if _LEVELS.index(fields.level) < _LEVELS.index(alert.level):
        return
    # A notifier puts its own arguments into the context that it is given.
    shown = {name: printable(str(value)) for name, value in asdict(fields).items()}
    template_context = cast("Any", {**context, "alert": shown})
    new_notifier(alert)(template_context)


def notify_all(alerts: Iterable[Alert], fields: AlertFields, context: Mapping[str, Any]) -> None:
    """Send an alert to every notifier; one that fails is logged and keeps nothing from the others."""
    for alert in alerts:
        try:
            notify(alert, fields, context)
        except Exception:
            log.exception("Notifier %s failed", alert.notifier)


def new_notifier(alert: Alert) -> BaseNotifier:
    """Return the notifier with its arguments. Raises ConfigurationError where the settings do not give one."""
    module, _, name = alert.notifier.rpartition(".")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            f"alerts: notifier: {alert.notifier!r} cannot be imported: {error}",
            remedy="allowed: the import path of an Airflow notifier, as in "
            "airflow.providers.smtp.notifications.smtp.SmtpNotifier",
        ) from None
    if not (isinstance(found, type) and issubclass(found, BaseNotifier)):
        raise ConfigurationError(f"alerts: notifier: {alert.notifier!r} is no Airflow notifier (BaseNotifier)")
    try:
        return cast("Callable[..., BaseNotifier]", found)(**_escaping_html(alert.arguments))
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"alerts: arguments of {alert.notifier}: {error}") from None


def _escaping_html(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Let the template engine escape what goes into HTML: into an argument that is HTML by its name."""
    return {
        name: f"{{% autoescape true %}}{value}{{% endautoescape %}}"
        if "html" in name and isinstance(value, str) and "{{" in value
        else value
        for name, value in arguments.items()
    }
