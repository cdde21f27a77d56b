"""Mishaps: one method for each mishap of a schedule, named after it."""

import asyncio
from collections.abc import Callable

from testing.simulation.apiserver import Answer
from testing.simulation.client import LEASES, Moment, Sent
from testing.simulation.loop import WORLD
from testing.simulation.lying import Liar, raised
from testing.simulation.processes import Process, Surroundings
from testing.simulation.schedule import Entry

PREFIX = "flotilla"
LAST_TERM = (1 << 31) - 1000
"""Almost the last that a Lease can hold."""
CUT_OFF = 0.3
"""The share of the writes of an attempt at which a process may be cut off: one attempt has several, in a row."""


class Mishaps:
    def __init__(self, around: Surroundings, processes: dict[str, Process], start: Callable[[str], None]) -> None:
        self.last_ends = 0.0
        """When the last temporary mishap ends."""
        self.restarts_from = 0.0
        """No process is restarted before."""
        self._around = around
        self._processes = processes
        self._start = start
        self._awaits_write: dict[str, Entry] = {}
        """By process: what begins as it binds next, or prepares that."""
        around.transport.on_call.append(self._on_call)

    def happen(self, entry: Entry) -> bool:
        """False if the entry is not a mishap."""
        method: Callable[[Entry], None] | None = getattr(self, f"_{entry.what}", None)
        if method is None:
            return False
        method(entry)
        return True

    def heal(self) -> None:
        around = self._around
        around.network.bad_luck = around.transport.bad_luck = 0.0
        around.network.down = around.redis.down = False
        around.network.cut_off.clear()
        around.transport.cut_off.clear()
        self._awaits_write.clear()
        around.transport.stalled_until = min(around.transport.stalled_until, asyncio.get_running_loop().time())

    def _until(self, entry: Entry, undo: Callable[[], object]) -> None:
        loop, lasts = asyncio.get_running_loop(), entry.number_of("for")
        self.last_ends = max(self.last_ends, loop.time() + lasts)
        loop.call_later(lasts, undo, context=WORLD)

    def _process(self, entry: Entry) -> Process | None:
        return self._processes.get(entry.arguments["name"])

    # Processes

    def _kill(self, entry: Entry) -> None:
        if (process := self._process(entry)) is not None:
            process.kill()

    def _stop(self, entry: Entry) -> None:
        if (process := self._process(entry)) is not None:
            process.stop()

    def _roll(self, entry: Entry) -> None:
        """End the leader of a service gracefully; its standby leads, and it is restarted as the next standby."""
        process = self._leading(entry)
        if process is not None and process.running:
            process.stop()

    def _total(self, entry: Entry) -> None:
        """End all processes at once, do something to Redis or nothing, then restart all."""
        for process in self._processes.values():
            if process.running:
                (process.stop if entry.arguments["how"] == "stop" else process.kill)()
        self.restarts_from = asyncio.get_running_loop().time() + entry.number_of("for")
        redis = self._around.redis
        meanwhile = {"restarts": redis.restart, "flushed": redis.flush, "rolls_back": lambda: redis.roll_back(1.0)}
        self._until(entry, meanwhile.get(entry.arguments["redis"], lambda: None))

    def _release(self, entry: Entry) -> None:
        """Replace a process by one of another release, or of this one."""
        releases, name = self._around.releases, entry.arguments["name"]
        releases.pop(name, None)
        if entry.arguments["is"] != "this":
            releases[name] = entry.arguments["is"]
        self._stop(entry)

    def _pause(self, entry: Entry) -> None:
        process = self._leading(entry)
        if process is not None and process.running and not process.paused:
            process.pause()
            self._until(entry, process.resume)

    def _lies(self, entry: Entry) -> None:
        """A process forges messages until it is killed."""
        process = self._leading(entry)
        if process is not None and process.running:
            dice = self._around.dice.of("lies", entry.number)
            process.lie(Liar(process.service, entry.number_of("share"), dice))
            self._around.lied = True
            self._until(entry, process.kill)

    def _forge(self, entry: Entry) -> None:
        """A standby, or another process with the credentials of a service, names terms and numbers in its name."""
        process = self._leading(entry)
        if process is not None:
            names = {name for name, each in self._processes.items() if each.service == process.service}
            self._around.network.forge(names, raised, entry.number)
            self._around.lied = True

    def _leading(self, entry: Entry) -> Process | None:
        """The standby if it leads, else the other one."""
        name = entry.arguments["name"]
        standby = self._processes.get(f"{name}-2")
        return standby if standby is not None and standby.shell is not None else self._processes.get(name)

    def _fault(self, entry: Entry) -> None:
        """The core raises on its next event."""
        process = self._process(entry)
        if process is not None and process.core is not None and not process.paused:
            process.inject_fault()

    def _clock(self, entry: Entry) -> None:
        """Set the wall clock of the process's machine."""
        skews, name = self._around.skews, entry.arguments["name"]
        skews[name] = skews.get(name, 0.0) + entry.number_of("by")

    def _standby(self, entry: Entry) -> None:
        self._start(entry.arguments["name"])

    def _lose_lease(self, entry: Entry) -> None:
        """Clear the holder, so that another process may lead before the leader notices."""
        lease = self._around.server.leases.get(f"{PREFIX}-{entry.arguments['name']}")
        if lease is not None:
            self._around.server.version += 1
            lease["spec"]["holderIdentity"] = ""
            lease["metadata"]["resourceVersion"] = str(self._around.server.version)

    def _raise_lease(self, entry: Entry) -> None:
        """Write a term that no leader can have reached."""
        self._around.lost_terms = True
        self._lose_lease(entry)
        lease = self._around.server.leases.get(f"{PREFIX}-{entry.arguments['name']}")
        if lease is not None:
            lease["spec"]["leaseTransitions"] = LAST_TERM

    def _delete_lease(self, entry: Entry) -> None:
        """Delete a Lease: its terms are counted from the date again."""
        self._around.lost_terms = True
        self._around.server.leases.pop(f"{PREFIX}-{entry.arguments['name']}", None)

    # The network

    def _bus_down(self, entry: Entry) -> None:
        self._around.network.down = True
        self._until(entry, lambda: setattr(self._around.network, "down", False))

    def _partition(self, entry: Entry) -> None:
        name, cut_off = entry.arguments["name"], self._around.network.cut_off
        cut_off.add(name)
        self._until(entry, lambda: cut_off.discard(name))

    def _cut_off(self, entry: Entry) -> None:
        """Cut a process off from NATS, and from the API server for `api` s, as it writes a binding or for PreBind.

        `at`: the end of the path that it writes to then; any otherwise.
        """
        self._awaits_write[entry.arguments["name"]] = entry

    def _on_call(self, sent: Sent, moment: Moment, answer: Answer | None) -> None:
        is_write = sent.method == "PUT" or sent.path.endswith("/binding")
        if moment is not Moment.SENT or not is_write or LEASES in sent.path:
            return
        entry = self._awaits_write.get(sent.sender)
        if entry is None:
            return
        dice, at = self._around.dice.of("cut off", entry.number, sent.path, sent.method), entry.arguments.get("at")
        if sent.path.endswith(at) if at else dice.random() < CUT_OFF:
            del self._awaits_write[sent.sender]
            self.cut_off(entry)

    def cut_off(self, entry: Entry) -> None:
        transport, name = self._around.transport, entry.arguments["name"]
        transport.cut_off.add(name)
        transport.drop_watches(name)
        later = asyncio.get_running_loop().call_later
        later(entry.number_of("api"), transport.cut_off.discard, name, context=WORLD)
        self._partition(entry)

    def _messages(self, entry: Entry) -> None:
        self._around.network.bad_luck = entry.number_of("share")
        self._until(entry, lambda: setattr(self._around.network, "bad_luck", 0.0))

    def _replay(self, entry: Entry) -> None:
        """Deliver earlier messages again."""
        self._around.network.replay(int(entry.number_of("messages")), entry.number)

    # The API server

    def _late_calls(self, entry: Entry) -> None:
        """Execute writes long after they were sent, and some of them twice."""
        transport = self._around.transport
        transport.late, transport.doubled = entry.number_of("share"), entry.number_of("doubled")

        def undo() -> None:
            transport.late = transport.doubled = 0.0

        self._until(entry, undo)

    def _behind(self, entry: Entry) -> None:
        """Break all watches and let lists and new watches lag for a while."""
        transport = self._around.transport
        transport.behind = int(entry.number_of("versions"))
        transport.behind_until = asyncio.get_running_loop().time() + entry.number_of("for")
        transport.drop_watches()
        self._until(entry, transport.drop_watches)

    def _calls(self, entry: Entry) -> None:
        self._around.transport.bad_luck = entry.number_of("share")
        self._until(entry, lambda: setattr(self._around.transport, "bad_luck", 0.0))

    def _stall(self, entry: Entry) -> None:
        now = asyncio.get_running_loop().time()
        self._around.transport.stalled_until = now + entry.number_of("for")
        self._until(entry, lambda: None)

    def _watches_break(self, entry: Entry) -> None:
        self._around.transport.drop_watches()

    # Redis

    def _redis_down(self, entry: Entry) -> None:
        self._around.redis.down = True
        self._until(entry, lambda: setattr(self._around.redis, "down", False))

    def _redis_restarts(self, entry: Entry) -> None:
        self._around.redis.restart()

    def _redis_flushed(self, entry: Entry) -> None:
        self._around.redis.flush()

    def _redis_rolls_back(self, entry: Entry) -> None:
        """Promote a lagging replica, or lose the last writes of the file."""
        self._redis_and(entry)
        self._around.redis.roll_back(entry.number_of("by"))

    def _redis_fails_over(self, entry: Entry) -> None:
        """The same, but the old master still answers some processes for a while."""
        self._redis_and(entry)
        dice, share = self._around.dice.of("stays", entry.number), entry.number_of("share")
        self._until(entry, self._around.redis.fail_over(entry.number_of("by"), lambda name: dice.random() < share))

    def _redis_and(self, entry: Entry) -> None:
        """Kill the snapshots along with Redis, or not."""
        for process in self._processes.values():
            if process.service == "snapshot" and entry.arguments["snapshot"] == "dies":
                process.kill()
