"""Queue and cycle read the same uid from a pod's body: else the queue would wait in vain for the pod's outcome."""

from typing import Any

import msgspec
import pytest

from services.cycle.events import Decided, Failed
from services.queue.events import PodPending, PodUnreadable
from services.queue.watch_decoder import WatchDecoder
from shared.messages.queue import Batch, QueuedPod
from shared.messages.watch import PodChange
from shared.model.objects import encode_msgpack
from testing.builders import pod
from tests.rounds.script import Script

P = pod("p").uid("u").owner("ReplicaSet", "r").label(app="web").request(cpu=1).build()
ODD: tuple[Any, ...] = (None, 5, "x", [], [5], {}, {"uid": 5})


def damaged() -> dict[str, bytes]:
    """Bodies of the pod with one value replaced or left out, or cut short."""
    whole = encode_msgpack(P)
    bodies = {"": whole, "cut short": whole[:-9], "nothing": b"", "not a map": encode_msgpack([whole])}

    def add(name: str, holder: tuple[str, ...], key: str, *value: Any) -> None:
        plain = msgspec.msgpack.decode(whole)
        there = plain
        for part in holder:
            there = there[part]
        if value:
            there[key] = value[0]
        else:
            there.pop(key, None)
        bodies[name] = encode_msgpack(plain)

    plain = msgspec.msgpack.decode(whole)
    places = [((), key) for key in plain] + [(("metadata",), key) for key in (*plain["metadata"], "annotations")]
    for holder, key in places:
        add(f"no {key}", holder, key)
        for value in ODD:
            add(f"{key} {value}", holder, key, value)
    return bodies


BODIES = damaged()


@pytest.mark.parametrize("damage", BODIES)
def test_a_pod_that_the_queue_hands_out_is_read_by_the_cycle_under_the_same_uid(damage: str) -> None:
    body = msgspec.Raw(BODIES[damage])
    change = PodChange("u", "default", "p", "default-scheduler", body=body)
    (event,) = WatchDecoder().decode(change, 1.0)
    if isinstance(event, PodUnreadable):
        assert event.uid == "u"
        return
    assert isinstance(event, PodPending)
    script = Script()
    effects = script.handle(Batch(1, 1, [QueuedPod(event.body, 1, 0.0, 0.0)]))
    held = [uid for uid in ("u",) if uid in script.core._held]
    assert held + [each.uid for each in effects if isinstance(each, Failed | Decided)] == ["u"]


def test_most_damages_leave_a_pod_that_is_not_queued() -> None:
    decoder = WatchDecoder()
    told = {
        damage: decoder.decode(PodChange("u", "default", "p", "default-scheduler", body=msgspec.Raw(body)), 1.0)[0]
        for damage, body in BODIES.items()
    }
    assert isinstance(told[""], PodPending)
    for damage in ("no metadata", "metadata {}", "no uid", "uid x", "uid 5", "metadata {'uid': 5}", "nothing"):
        assert isinstance(told[damage], PodUnreadable), damage
