"""Child processes that end with their owner, however the owner ends."""

from __future__ import annotations

import os
import shutil
from signal import Signals

_NOBODY = 65534


class SetprivMissingError(Exception):
    """util-linux is not there, which Debian always has."""


def dying_with_owner(command: list[str], death_signal: Signals) -> list[str]:
    """Return the command, sent a signal when the thread that starts it ends."""
    return [_setpriv(), "--pdeathsig", death_signal.name.removeprefix("SIG"), *command]


def unprivileged(command: list[str]) -> list[str]:
    """Return the command as nobody if we are root: PostgreSQL refuses to run as root.

    With one capability, nobody still reaches folders below private ones. A death signal must be set inside, because the
    kernel forgets it when the user changes.
    """
    if os.geteuid() != 0:
        return command
    return [
        _setpriv(),
        *(f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups"),
        *("--inh-caps=+dac_override", "--ambient-caps=+dac_override"),
        *command,
    ]


def _setpriv() -> str:
    path = shutil.which("setpriv")
    if path is None:
        raise SetprivMissingError("setpriv is not installed; as root: apt-get install util-linux")
    return path
