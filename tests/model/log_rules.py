"""What a session at the Publisher proves before anything is read there."""

from __future__ import annotations

from collections.abc import Collection

from model import publisher_servers as servers
from model.log_world import Distributor, Mutation, Registration, World
from model.publisher_servers import Server, Slot, Transaction
from model.search import Violation


class Rules:
    """All but those that are broken."""

    def __init__(self, mutations: Collection[Mutation]) -> None:
        self._mutations = mutations

    def problem(self, server: Server, distributor: Distributor) -> str | None:
        """Return why the registered position is not known to be on this server's log."""
        known = distributor.registration
        slot = None if known is None else self.slot(server, known)
        if known is None or slot is None:
            return "not set up, or no slot"
        if slot.confirmed > known.position and not self.lacks(Mutation.A_SLOT_PAST_WHAT_IS_REGISTERED_IS_READ):
            return "the slot is past what is registered"
        if slot.confirmed < known.start and not self.lacks(Mutation.A_SLOT_BEFORE_THE_START_IS_READ):
            return "the slot is one of before reading began"
        if not self._is_on_history(server, known.system, known.timeline, known.position):
            return "another server, or another timeline"
        last = distributor.commands[-1] if distributor.commands else None
        if not self._is_in_log(server, known, known.position, last, known.time):
            return "the log does not hold what is registered"
        return None

    def slot(self, server: Server, known: Registration) -> Slot | None:
        """Return the slot with which reading began."""
        slot = server.slot
        if slot is None or slot.name == known.slot or self.lacks(Mutation.A_NEW_SLOT_HAS_THE_FORMER_NAME):
            return slot
        return None

    def contradicts_snapshot(self, server: Server, distributor: Distributor) -> bool:
        """Return whether the Subscriber may have what this log does not have and what is not registered."""
        known, it = distributor.registration, distributor.snapshot
        if known is None or it is None or it.position <= known.position:
            return False
        if self.lacks(Mutation.SNAPSHOTS_ARE_NOT_LOOKED_AT):
            return False
        on_history = self._is_on_history(server, it.system, it.timeline, it.position)
        return not on_history or not self._is_in_log(server, known, it.position, it.last, None)

    def _is_on_history(self, server: Server, system: int, timeline: int, position: int) -> bool:
        if system != server.system and not self.lacks(Mutation.SYSTEM_IDENTIFIER_IS_NOT_COMPARED):
            return False
        if self.lacks(Mutation.TIMELINES_ARE_NOT_COMPARED) or timeline == server.timeline:
            return True
        return timeline < server.timeline and position <= server.switches[timeline - 1]

    def _is_in_log(
        self, server: Server, known: Registration, position: int, last: Transaction | None, time: int | None
    ) -> bool:
        """Return whether the log from the slot to `position` ends in transaction `last`, where that is one of them, and
        else holds none.
        """
        assert server.slot is not None
        if server.end.position < position and not self.lacks(Mutation.AN_END_BEFORE_WHAT_IS_REGISTERED_IS_NO_MATTER):
            return False
        if self.lacks(Mutation.THE_LOG_BEHIND_THE_SLOT_IS_NOT_LOOKED_AT):
            return True
        after = max(server.slot.confirmed, known.start)
        found = servers.published(server.end, after, position)
        expected = (last,) if last is not None and last.position > after else ()
        if time is not None:
            # Mutation.EARLIER_COMMITS_ARE_ALLOWED
            return set(expected) <= set(found) and all(it.time < time for it in found)
        return found[-1:] == expected

    def lacks(self, mutation: Mutation) -> bool:
        return mutation in self._mutations

    def refused(self, world: World) -> World:
        """Refuse a run, and report it. Raises Violation where the log is the very one that was read."""
        server, known = world.server, world.distributor.registration
        slot = None if known is None else self.slot(server, known)
        if known is not None and slot is not None and known.start <= slot.confirmed <= known.position:
            later = known.system == server.system and known.timeline <= server.timeline
            there = servers.published(server.end, known.start, known.position)
            if later and servers.holds(server.end, known.read) and there == world.distributor.commands:
                raise Violation("a run is refused, though nothing is lost")
        return world._replace(refused=True)

    def key(self, system: int) -> int:
        return 0 if self.lacks(Mutation.WATERMARKS_DO_NOT_NAME_THE_PUBLISHER) else system
