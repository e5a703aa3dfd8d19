"""Actions of the monitor: each is a run of one of the publication's DAGs, with parameters."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum, auto
from typing import Any

from pydantic import BaseModel, ConfigDict

from tranrepl.admin.skip_and_retry import parse_xact_seqno
from tranrepl.errors import ConfigurationError
from tranrepl_airflow import parameters
from tranrepl_airflow.dag_builder import (
    ADMINISTRATION_SUFFIX,
    REINITIALIZATION_SUFFIX,
    SETUP_SUFFIX,
    VALIDATION_SUFFIX,
)
from tranrepl_airflow.parameters import AdministrationAction


class Action(StrEnum):
    """What can be done. The values are the last part of an action's address."""

    RUN = auto()
    VALIDATE = auto()
    REINITIALIZE = auto()
    TRACE = auto()
    SKIP = auto()
    RETRY = auto()
    CLEANUP = auto()
    ACKNOWLEDGE = auto()
    TEST_ALERT = auto()
    CHECK = auto()
    SETUP = auto()


_BY_HAND: Mapping[Action, AdministrationAction] = {
    Action.TRACE: AdministrationAction.TRACE,
    Action.SKIP: AdministrationAction.SKIP,
    Action.RETRY: AdministrationAction.RETRY,
    Action.CLEANUP: AdministrationAction.CLEANUP,
    Action.ACKNOWLEDGE: AdministrationAction.ACKNOWLEDGE,
    Action.TEST_ALERT: AdministrationAction.TEST_ALERT,
}
_SUFFIXES: Mapping[Action, str] = {
    Action.RUN: "",
    Action.VALIDATE: VALIDATION_SUFFIX,
    Action.REINITIALIZE: REINITIALIZATION_SUFFIX,
    Action.CHECK: SETUP_SUFFIX,
    Action.SETUP: SETUP_SUFFIX,
    **dict.fromkeys(_BY_HAND, ADMINISTRATION_SUFFIX),
}


def dag_id_of(action: Action, publication: str) -> str:
    """Return the id of the DAG that does it."""
    return f"{publication}{_SUFFIXES[action]}"


class ActionRequest(BaseModel):
    """What a form of the monitor sends; each action reads its own fields."""

    model_config = ConfigDict(extra="forbid")

    subscriptions: list[str] = []
    """Empty: all of them, where the action allows it."""
    articles: list[str] = []
    """Empty: all of them."""
    rowcount_only: bool = False
    repair: bool = False
    subscription: str | None = None
    xact_seqno: str | None = None
    """The transaction that is skipped, or that delivery goes back to."""
    typed: str | None = None
    """The transaction to skip, as the person typed it: the same, or nothing is done."""

    def conf(self, action: Action) -> dict[str, Any]:
        """Return the run's parameters. Raises ConfigurationError where what was typed is not what would be skipped."""
        if action in _BY_HAND:
            return self._by_hand(action)
        if action in (Action.CHECK, Action.SETUP):
            return {parameters.CHECK_ONLY: action is Action.CHECK}
        if action is Action.RUN:
            return {}
        chosen: dict[str, Any] = {parameters.SUBSCRIPTIONS: self.subscriptions, parameters.ARTICLES: self.articles}
        if action is Action.VALIDATE:
            chosen |= {parameters.ROWCOUNT_ONLY: self.rowcount_only, parameters.REPAIR: self.repair}
        return chosen

    def _by_hand(self, action: Action) -> dict[str, Any]:
        done = {parameters.ACTION: _BY_HAND[action].value}
        if action not in (Action.SKIP, Action.RETRY):
            return done
        seqno = parse_xact_seqno((self.xact_seqno or "").strip())
        if action is Action.SKIP and parse_xact_seqno((self.typed or "").strip()) != seqno:
            raise ConfigurationError(f"{self.typed} is not the transaction that would be skipped, 0x{seqno.hex()}")
        if not self.subscription:
            raise ConfigurationError("no subscription was chosen")
        return {**done, parameters.SUBSCRIPTION: self.subscription, parameters.XACT_SEQNO: f"0x{seqno.hex()}"}
