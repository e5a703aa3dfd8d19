"""The way of the log into the distribution database and to a Subscriber, while servers change underneath.

One runner reads, registers, advances the slot and delivers, again and again; one administrator reinitializes what was
refused. Any step of one may come between any two steps of the other and between any two events; either may be killed
before each step, as often as it takes. The outcome of an event must be reported, never passed over: at all times the
Subscriber has the rows of one history, and whenever a run ends well, of the Publisher's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from model import publisher_servers as servers
from model.log_rules import Rules
from model.log_world import (
    NO_RUN,
    NOBODY,
    Administrator,
    Distributor,
    Mutation,
    Registration,
    Runner,
    Snapshot,
    Start,
    Step,
    Subscriber,
    World,
)
from model.publisher_servers import Event, Server, Slot, Transaction
from model.search import Search, Transition, Violation, explore

_LOADING = 0
_SECOND_SYSTEM = 9
_LATEST = 10


class Protocol(Rules):
    """All that can happen next. Raises Violation where it must not happen."""

    def __init__(self, events: Collection[Event], mutations: Collection[Mutation]) -> None:
        super().__init__(mutations)
        self._events = events

    def next(self, world: World) -> Iterator[Transition[World]]:
        for after in (*self._run(world), *self._administrate(world), *self._beside(world)):
            yield Transition(after, fault=False)
        if world.runner is not NO_RUN:
            yield Transition(world._replace(runner=NO_RUN), fault=True)
        if world.administrator is not NOBODY:
            yield Transition(world._replace(administrator=NOBODY), fault=True)
        for after in self._ground(world):
            yield Transition(after, fault=True)

    # A run

    def _run(self, world: World) -> Iterator[World]:
        runner = world.runner
        match runner.step:
            case Step.IDLE:
                yield self._look(world)
                yield from self._plan(world, connected=False)
            case Step.OPEN:
                yield from self._read(world)
            case Step.READ:
                yield self._register(world)
            case Step.REGISTERED:
                yield self._advance(world)
            case Step.DELIVERING:
                yield self._deliver(world)

    def _look(self, world: World) -> World:
        server, distributor = world.server, world.distributor
        if self.problem(server, distributor):
            return self.refused(world)
        if self.contradicts_snapshot(server, distributor):
            if not distributor.waits:
                return world._replace(refused=True)
            # Nothing was delivered after it: it is called off.
            distributor = distributor._replace(snapshot=None)
        known, slot = distributor.registration, server.slot
        assert known is not None
        assert slot is not None
        slot = slot._replace(confirmed=max(slot.confirmed, min(known.position, server.end.position)))
        runner = Runner(Step.OPEN, known, connected=True)
        server = server._replace(slot=slot)
        return world._replace(server=server, distributor=distributor, runner=runner, refused=False)

    def _read(self, world: World) -> Iterator[World]:
        runner, server, known = world.runner, world.server, world.runner.registration
        assert known is not None
        slot = self.slot(server, known)
        if slot is None or not (runner.connected or self.lacks(Mutation.SESSIONS_ARE_NOT_COMPARED)):
            yield world._replace(runner=NO_RUN)
            return
        last = server.end.position if self.lacks(Mutation.STANDBYS_ARE_NOT_WAITED_FOR) else server.readable
        if last <= known.position:
            yield from self._plan(world, connected=runner.connected and known == world.distributor.registration)
            return
        if slot.confirmed > known.position and not self.lacks(Mutation.READERS_DO_NOT_LOOK_AT_THE_SLOT):
            yield world._replace(runner=NO_RUN)
            return
        commands = servers.published(server.end, max(known.position, slot.confirmed), last)
        end, time = servers.up_to(server.end, last), self._time(world) or None
        read = Registration(server.system, server.timeline, known.slot, known.start, end, time)
        yield world._replace(runner=runner._replace(step=Step.READ, read=read, commands=commands))

    def _register(self, world: World) -> World:
        runner, distributor = world.runner, world.distributor
        known, read = distributor.registration, runner.read
        assert runner.registration is not None
        assert read is not None
        if known is None or not self._is_same(known, runner.registration):
            return world._replace(runner=NO_RUN)
        commands = (*distributor.commands, *runner.commands)
        distributor = distributor._replace(registration=read, commands=commands)
        runner = Runner(Step.REGISTERED, read, connected=runner.connected)
        return world._replace(distributor=distributor, runner=runner)

    def _is_same(self, one: Registration, other: Registration) -> bool:
        if self.lacks(Mutation.REGISTERING_COMPARES_THE_POSITION_ONLY):
            return one.position == other.position
        return one == other or self.lacks(Mutation.REGISTERING_DOES_NOT_COMPARE)

    def _advance(self, world: World) -> World:
        runner, server, known = world.runner, world.server, world.runner.registration
        assert known is not None
        slot = self.slot(server, known)
        if slot is None or not runner.connected:
            return world._replace(runner=NO_RUN)
        slot = slot._replace(confirmed=max(slot.confirmed, known.position))
        return world._replace(server=server._replace(slot=slot), runner=runner._replace(step=Step.OPEN))

    def _plan(self, world: World, *, connected: bool) -> Iterator[World]:
        """Yield what is to be delivered: as the end of a run, or as `tranrepl distribute`."""
        distributor, subscriber = world.distributor, world.subscriber
        known, began = distributor.registration, distributor.snapshot
        watermark = None if known is None else subscriber.watermark(self.key(known.system))
        if known is None or began is None or distributor.waits:
            yield world._replace(runner=NO_RUN)
            return
        if watermark is None:
            yield world._replace(runner=NO_RUN, refused=True)
            return
        before = [it for it in distributor.commands if began.position < it.position <= watermark]
        there = before[-1] if before else began.last
        ahead = watermark > max(known.position, began.position)
        if (ahead or subscriber.rows != there) and not self.lacks(Mutation.SUBSCRIBER_IS_NOT_COMPARED):
            yield world._replace(runner=NO_RUN, refused=True)
            return
        commands = tuple(it for it in distributor.commands if it.position > watermark)
        runner = Runner(Step.DELIVERING, known, commands=commands, connected=connected)
        yield world._replace(runner=runner)

    def _deliver(self, world: World) -> World:
        runner, subscriber = world.runner, world.subscriber
        assert runner.registration is not None
        if runner.fenced:
            return world._replace(runner=NO_RUN)
        key = self.key(runner.registration.system)
        for it in runner.commands:
            subscriber = subscriber.at(_applied(subscriber.rows, it), key, it.position)
        watermark = subscriber.watermark(key) or 0
        if runner.connected:
            told = servers.up_to(world.server.end, max(runner.registration.position, watermark))
            if subscriber.rows != servers.shown(told):
                raise Violation("a run has ended well, and the Subscriber does not have the Publisher's rows")
        return world._replace(subscriber=subscriber, runner=NO_RUN)

    def _time(self, world: World) -> int:
        """Return a commit time that increases where the protocol compares such times, and 0 elsewhere."""
        return _LATEST - world.writes if self.lacks(Mutation.EARLIER_COMMITS_ARE_ALLOWED) else 0

    # Reinitialising: registration, slot, snapshot

    def _administrate(self, world: World) -> Iterator[World]:
        administrator, distributor = world.administrator, world.distributor
        match administrator.step:
            case Step.IDLE:
                if world.refused or distributor.registration is None:
                    yield self._reinitialize(world)
                if distributor.waits and distributor.registration is not None:
                    yield self._export(world)
            case Step.FORGOTTEN:
                slotless = world.server._replace(slot=None)
                yield world._replace(server=slotless, administrator=Administrator(Step.DROPPED))
            case Step.DROPPED:
                end = world.server.end.position
                made = world.server._replace(slot=Slot(end, end, self._name(world.server)))
                yield world._replace(server=made, administrator=Administrator(Step.MADE, connected=True))
            case Step.MADE:
                yield self._start(world)
            case Step.EXPORTED:
                yield self._begin(world)
            case Step.BEGUN:
                yield from self._load(world)
            case Step.LOADED:
                yield self._activate(world)

    def _reinitialize(self, world: World) -> World:
        if not self.lacks(Mutation.REGISTRATION_IS_FORGOTTEN_LAST):
            world = world._replace(distributor=self._forgotten(world.distributor))
        return world._replace(refused=False, administrator=Administrator(Step.FORGOTTEN))

    def _forgotten(self, distributor: Distributor) -> Distributor:
        return Distributor(
            None,
            distributor.commands if self.lacks(Mutation.COMMANDS_ARE_KEPT) else (),
            distributor.waits or not self.lacks(Mutation.SUBSCRIPTIONS_DO_NOT_WAIT),
            distributor.snapshot if self.lacks(Mutation.SUBSCRIPTIONS_DO_NOT_WAIT) else None,
            distributor.keyed,
        )

    def _name(self, server: Server) -> int:
        if self.lacks(Mutation.A_NEW_SLOT_HAS_THE_FORMER_NAME):
            return servers.FIRST_NAME
        return 10 * server.number + server.end.position

    def _start(self, world: World) -> World:
        """Start in the session that made the slot."""
        server, slot = world.server, world.server.slot
        if slot is None or not world.administrator.connected:
            return world._replace(administrator=NOBODY)
        start = slot.confirmed
        started = Registration(server.system, server.timeline, slot.name, start, servers.up_to(server.end, start), None)
        distributor = self._forgotten(world.distributor)._replace(registration=started)
        return world._replace(distributor=distributor, administrator=NOBODY)

    def _export(self, world: World) -> World:
        server, distributor = world.server, world.distributor
        proves = not self.lacks(Mutation.SNAPSHOT_DOES_NOT_PROVE_THE_PUBLISHER)
        if proves and self.problem(server, distributor):
            return self.refused(world)
        taken = Snapshot(server.system, server.timeline, server.end.position, servers.shown(server.end))
        distributor = distributor._replace(snapshot=taken)
        return world._replace(distributor=distributor, administrator=Administrator(Step.EXPORTED, taken, True))

    def _begin(self, world: World) -> World:
        """Empty the tables, and fence off whoever delivers."""
        administrator, distributor, runner = world.administrator, world.distributor, world.runner
        known = distributor.registration
        if known is None or not administrator.connected:
            return world._replace(administrator=NOBODY)
        fenced = {self.key(known.system)}
        if not self.lacks(Mutation.FORMER_WATERMARK_IS_LEFT):
            fenced.add(distributor.keyed)
        kept = tuple(it for it in world.subscriber.watermarks if it[0] not in fenced)
        subscriber = Subscriber(None, kept).at(None, self.key(known.system), _LOADING)
        if runner.step is Step.DELIVERING and runner.registration is not None:
            runner = runner._replace(fenced=runner.fenced or self.key(runner.registration.system) in fenced)
        return world._replace(
            subscriber=subscriber, runner=runner, administrator=administrator._replace(step=Step.BEGUN)
        )

    def _load(self, world: World) -> Iterator[World]:
        administrator, known = world.administrator, world.distributor.registration
        snapshot = administrator.snapshot
        assert snapshot is not None
        key = None if known is None else self.key(known.system)
        if not administrator.connected or key is None or world.subscriber.watermark(key) != _LOADING:
            yield world._replace(administrator=NOBODY)
        elif world.server.readable >= snapshot.position or self.lacks(Mutation.SNAPSHOT_DOES_NOT_WAIT_FOR_STANDBYS):
            subscriber = world.subscriber.at(snapshot.last, key, snapshot.position)
            yield world._replace(subscriber=subscriber, administrator=administrator._replace(step=Step.LOADED))

    def _activate(self, world: World) -> World:
        distributor = world.distributor
        if distributor.snapshot == world.administrator.snapshot and distributor.registration is not None:
            keyed = self.key(distributor.registration.system)
            distributor = distributor._replace(waits=False, keyed=keyed)
        return world._replace(distributor=distributor, administrator=NOBODY)

    # What goes on beside

    def _beside(self, world: World) -> Iterator[World]:
        if Event.OVERTAKEN in self._events and world.runner.step is Step.READ:
            yield self._register(world)._replace(runner=world.runner)
        server = world.server
        if server.standby is not None and server.standby < server.end.position:
            yield world._replace(server=server._replace(standby=server.standby + 1))
        key = self.key(_SECOND_SYSTEM)
        watermark = world.subscriber.watermark(key)
        if world.second != 1 or watermark is None:
            return
        if key == _SECOND_SYSTEM or self.lacks(Mutation.SUBSCRIBER_IS_NOT_COMPARED):
            if watermark > 1:
                raise Violation("a transaction of the second Publisher is lost")
            subscriber = world.subscriber.at(world.subscriber.rows, key, 2)
            yield world._replace(second=2, subscriber=subscriber)

    # Events

    def _ground(self, world: World) -> Iterator[World]:
        if world.writes:
            fewer = world._replace(writes=world.writes - 1)
            time = self._time(world)
            yield from (fewer._replace(server=it) for it in servers.written(world.server, time))
            if world.other is not None:
                yield from (fewer._replace(other=it) for it in servers.written(world.other, time))
        if world.faults:
            left = world._replace(faults=world.faults - 1)
            yield from self._at_publisher(left)
            yield from self._at_the_others(left)
        if world.backup is None and world.faults:
            if Event.DISTRIBUTION_RESTORED in self._events and not world.distributor.waits:
                yield world._replace(backup=world.distributor)
            if Event.SUBSCRIBER_RESTORED in self._events and not world.distributor.waits:
                yield world._replace(backup=world.subscriber)

    def _at_publisher(self, world: World) -> Iterator[World]:
        """Yield what happens at the Publisher; whatever was connected is not any more."""
        server, events, number = world.server, self._events, 2 + world.faults
        moved = world._replace(
            runner=world.runner._replace(connected=False),
            administrator=world.administrator._replace(connected=False),
        )
        if Event.CRASHED in events:
            yield moved._replace(server=servers.crashed(server))
        if Event.PUBLISHER_RESTORED in events:
            yield from (moved._replace(server=it, other=server) for it in servers.restored(server, number))
        if Event.STANDBY_PROMOTED in events:
            for it in servers.promoted(server, number):
                has = 0 if world.distributor.waits or world.subscriber.rows is None else world.subscriber.rows.position
                if server.standby is not None and has > it.end.position:
                    raise Violation("a Subscriber has what the promoted standby does not have")
                yield moved._replace(server=it, other=server)
        if Event.CONNECTION_MOVED in events and world.other is not None:
            yield moved._replace(server=world.other, other=server)
        if Event.DUMPED_AND_RESTORED in events:
            yield from (moved._replace(server=it, other=server) for it in servers.loaded_from_dump(number))
        if Event.SLOT_DROPPED in events:
            yield world._replace(server=server._replace(slot=None))
        if Event.SLOT_MADE_ANEW in events:
            known, end = world.distributor.registration, server.end.position
            name = self._name(server) if known is None else known.slot
            yield world._replace(server=server._replace(slot=Slot(end, end, name)))

    def _at_the_others(self, world: World) -> Iterator[World]:
        events = self._events
        if isinstance(world.backup, Distributor) and not world.distributor.waits:
            yield world._replace(distributor=world.backup)
        if isinstance(world.backup, Subscriber):
            runner = world.runner._replace(fenced=world.runner.step is Step.DELIVERING)
            yield world._replace(subscriber=world.backup, runner=runner)
        if Event.SECOND_PUBLISHER in events and not world.second:
            key = self.key(_SECOND_SYSTEM)
            subscriber = world.subscriber
            if subscriber.watermark(key) is None:
                subscriber = subscriber.at(subscriber.rows, key, 1)
            yield world._replace(second=1, subscriber=subscriber)
        if Event.REINITIALIZED in events and world.administrator.step is Step.IDLE:
            yield self._reinitialize(world)


def _applied(rows: Transaction | None, it: Transaction) -> Transaction:
    if rows is not None and servers.holds(rows, it):
        raise Violation("a transaction is applied twice")
    if rows is None or it.before is None or servers.shown(it.before) != rows:
        raise Violation("a transaction is applied to rows that are not those before it")
    return it


def search(
    events: Collection[Event],
    mutations: Collection[Mutation] = (),
    faults: int = 1,
    writes: int = 2,
    start: Start = Start(),  # noqa: B008 — it is a tuple
) -> Search[World]:
    """Visit every state that can be reached by these events and up to so many of them, and hold all of them against
    what must always hold. `standby`: where the one of synchronized_standby_slots stands."""
    protocol = Protocol(events, mutations)
    key = 0 if Mutation.WATERMARKS_DO_NOT_NAME_THE_PUBLISHER in mutations else 1
    server = Server(1, 1, (), servers.FIRST, Slot(1, 1, servers.FIRST_NAME), start.standby)
    distributor = Distributor(
        Registration(1, 1, servers.FIRST_NAME, 1, servers.FIRST, None),
        (),
        start.waits,
        Snapshot(1, 1, 1, servers.FIRST),
        key,
    )
    subscriber = Subscriber(servers.FIRST, ((key, 1),))
    initial = World(server, None, distributor, subscriber, None, 0, NO_RUN, NOBODY, False, writes, faults)
    return explore(initial, protocol.next, _is_finished)


def _is_finished(world: World) -> bool:
    """Return whether the Subscriber has all, nobody has anything left to do, and the next run would go on from here."""
    known, end = world.distributor.registration, world.server.end
    if known is None or world.distributor.waits or world.refused or world.second == 1:
        return False
    idle = world.runner.step is Step.IDLE and world.administrator.step is Step.IDLE
    return idle and known.position == end.position and world.subscriber.rows == servers.shown(end)
