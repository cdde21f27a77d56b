"""What processes in wrong hands say in the simulation."""

import random
from contextlib import suppress

import pytest

from shared.bus.wire import MessageReader, RefusedMessage
from shared.messages.binding import BindingOutcome, BindingOutcomes, Displaced, Evict
from shared.messages.codec import Message, encode
from shared.messages.state import Heartbeat
from shared.messages.watch import WatchBeat
from testing.simulation.drawing import LIARS, SCENES, draw
from testing.simulation.lying import Liar
from testing.simulation.network import HEADERS
from testing.simulation.processes import service_of

SERVICES = {"watcher", "queue", "snapshot", "cycle", "worker", "binder"}
EVICT = Evict(3, 7, "u9", "default", "p9", "default-scheduler", "n0", [Displaced("u1", "default", "p1")])
OUTCOMES = BindingOutcomes("b1", 3, 7, [BindingOutcome("u1", 5), BindingOutcome("u2", 6, "no")], "b1.1")


def heard(service: str, message: Message) -> list[Message]:
    """What receivers read of a hundred lies."""
    found: list[Message] = []
    for seed in range(100):
        lie = Liar(service, 1.0, random.Random(seed))(encode(message))
        with suppress(RefusedMessage):
            found.append(MessageReader(type(message)).read(lie, HEADERS))
    return found


@pytest.mark.parametrize(("service", "message"), [("snapshot", Heartbeat(3, 7)), ("watcher", WatchBeat(3, 7))])
def test_terms_that_are_years_ahead_are_refused(service: str, message: Message) -> None:
    assert heard(service, message) == []


def test_a_binder_does_not_lie_about_whether_a_pod_is_bound() -> None:
    lies = heard("binder", OUTCOMES)
    assert lies
    for lie in lies:
        assert isinstance(lie, BindingOutcomes)
        assert [(each.uid, each.attempt, each.waits) for each in lie.outcomes] == [("u1", 5, True), ("u2", 6, True)]


def test_a_snapshot_names_victims_that_it_has_not_decided_on() -> None:
    lies = heard("snapshot", EVICT)
    assert lies
    for lie in lies:
        assert isinstance(lie, Evict)
        assert lie.victims != EVICT.victims
        assert (lie.uid, lie.attempt, lie.node) == (EVICT.uid, EVICT.attempt, EVICT.node)


def test_processes_of_all_services_lie_where_the_scene_bears_it() -> None:
    assert LIARS.keys() == SCENES.keys()
    drawn: dict[str, set[str]] = {scene: set() for scene in SCENES}
    for seed in range(300):
        schedule = draw(seed, mishaps=frozenset({"lies"}))
        drawn[schedule.scene] |= {entry.arguments["name"] for entry in schedule.entries if entry.what == "lies"}
    assert drawn == {scene: set(liars) for scene, liars in LIARS.items()}
    assert {service_of(name) for name in drawn["plain"]} == SERVICES
