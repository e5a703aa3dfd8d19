"""The ways to apply that are measured, and the one place where a subscription's settings say which."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from tranrepl.settings import Subscription


class Mode(StrEnum):
    """`apply` of a subscription."""

    AUTO = "auto"
    COMMANDS = "commands"


def measured_modes() -> tuple[Mode, ...]:
    """The default first."""
    return tuple(Mode) if "apply" in Subscription.model_fields else (Mode.COMMANDS,)


def settings_of(mode: Mode) -> Mapping[str, object]:
    """What a subscription of this mode has in its settings."""
    return {"apply": mode.value} if "apply" in Subscription.model_fields else {}
