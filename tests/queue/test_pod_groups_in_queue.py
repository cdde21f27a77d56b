"""Gangs in the scheduling queue: held, handed out together, and reported to owners."""

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from msgspec.structs import replace

from flotilla.events import Action, Resource
from services.queue.batch_contents import MAX_ENTRY_BYTES
from services.queue.events import PodBound, PodPending, Tick, WatchEvents
from services.queue.scheduling.cluster_event import ClusterChange
from services.queue.scheduling.group_info import GROUP_TIMEOUT
from services.queue.scheduling.holds import FIRST_EVENT
from services.queue.scheduling.queued_pod_info import PodState
from shared.framework.clusterevents import ClusterEvent
from shared.messages.codec import encode
from shared.messages.limits import MAX_BODY
from shared.messages.queue import Activate, Gang
from shared.model.objects import GROUP_LABEL, ObjectKind, Pod, encode_msgpack, object_from, pod_from_msgpack
from testing.builders import PodBuilder, pod
from tests.queue.support import POD_ADDED, POD_DELETED, Queue, batch_in, notices, uid

GANG = "GangScheduling"


def group(least: int, timeout: int | None = None, name: str = "g", keys: str = "") -> ClusterChange:
    meta = {"name": name, "annotations": {"flotilla.io/required-topology": keys} if keys else {}}
    raw = {"metadata": meta, "spec": {"minMember": least, "scheduleTimeoutSeconds": timeout}}
    event = ClusterEvent(Resource.POD_GROUP, Action.ADD)
    return ClusterChange(event, None, object_from(ObjectKind.COSCHEDULING_POD_GROUP, raw))


def no_group(name: str = "g") -> ClusterChange:
    return ClusterChange(ClusterEvent(Resource.POD_GROUP, Action.DELETE), group(1, name=name).now, None)


def member(name: str, of: str = "g") -> PodBuilder:
    return pod(name).label({GROUP_LABEL: of})


def a_gang(*names: str, least: int) -> Queue:
    queue = Queue()
    queue.tell(group(least))
    queue.add(*(member(name) for name in names))
    return queue


def versioned(made: PodBuilder, version: str) -> Pod:
    built = made.build()
    return replace(built, metadata=replace(built.metadata, resource_version=version))


def taken(queue: Queue, most: int = 100) -> list[tuple[str, Gang | None]]:
    queue.ask(most)
    return answered(queue)


def answered(queue: Queue) -> list[tuple[str, Gang | None]]:
    """The names of the pods in the batch that the last event brought."""
    batch = batch_in(queue.effects)
    return [] if batch is None else [(pod_from_msgpack(q.pod).name, batch.whole(q).gang) for q in batch.pods]


def of_gang(least: int, *names: str) -> list[tuple[str, Gang | None]]:
    return [(name, Gang("scheduling.x-k8s.io/default/g", least)) for name in names]


def test_a_gang_is_handed_out_when_it_is_complete() -> None:
    queue = a_gang("a", "b", least=3)
    assert taken(queue) == []
    assert {queue.state(name) for name in "ab"} == {PodState.GATED}
    queue.add(member("c"))
    assert answered(queue) == of_gang(3, "a", "b", "c")


def test_a_gang_takes_its_first_members_place_in_the_order() -> None:
    queue = Queue()
    queue.tell(group(2))
    queue.add(member("a").priority(5), "x", member("b"), "y")
    assert taken(queue) == [*of_gang(2, "a", "b"), ("x", None), ("y", None)]


def test_a_gang_is_handed_out_whole_though_fewer_pods_are_wanted() -> None:
    queue = a_gang("a", "b", "c", least=3)
    queue.add("x")
    assert taken(queue, 1) == of_gang(3, "a", "b", "c")
    assert taken(queue, 1) == [("x", None)]


def test_a_gang_that_does_not_fit_behind_others_waits_for_the_next_batch() -> None:
    queue = Queue()
    queue.tell(group(2))
    queue.add("x", member("a"), member("b"))
    assert taken(queue, 2) == [("x", None)]
    assert taken(queue, 2) == of_gang(2, "a", "b")


def test_a_gang_that_fits_in_no_message_fails_and_blocks_no_others() -> None:
    queue = Queue()
    queue.tell(group(2))
    large = msgspec.Raw(bytes(MAX_ENTRY_BYTES // 2))
    queue.tell(WatchEvents([PodPending(member(name).build(), queue.now, large) for name in "ab"]))
    queue.add("x")
    queue.ask(100)
    assert [told.message for told in notices(queue.effects)] == 2 * [
        "pod group scheduling.x-k8s.io/default/g: the 2 pods that are placed together take 8,386,838 bytes in a "
        "message, and at most 8,386,560 fit"
    ]
    assert answered(queue) == [("x", None)]
    assert {queue.state(name) for name in "ab"} == {PodState.ERROR_BACKOFF}


def test_a_pod_that_fits_in_no_message_fails_and_blocks_no_others() -> None:
    queue = Queue()
    queue.tell(PodPending(pod("large").build(), queue.now, msgspec.Raw(bytes(MAX_ENTRY_BYTES))))
    queue.add("x")
    assert taken(queue) == [("x", None)]
    assert queue.state("large") is PodState.ERROR_BACKOFF


def test_a_batch_with_a_gang_that_says_much_of_itself_can_be_sent() -> None:
    """8,000 pods of 800 bytes, and 2.5 kB of labels in the group's annotation."""
    queue = Queue()
    queue.tell(group(8000, keys=",".join(f"{'x' * 240}.example/{i:060}" for i in range(8))))
    made, body = member("w").build(), msgspec.Raw(encode_msgpack("x" * 800))
    pods = [replace(made, metadata=replace(made.metadata, name=f"w{i}", uid=f"w{i}")) for i in range(8000)]
    queue.tell(WatchEvents([PodPending(each, queue.now, body) for each in pods]))
    batch = queue.ask(100)
    assert batch is not None and len(batch.pods) == 8000
    assert len(encode(batch)) <= MAX_BODY
    gang = batch.whole(batch.pods[-1]).gang
    assert gang is not None and len(gang.topology) == 8


def test_requeueing_one_member_retries_all() -> None:
    queue = a_gang("a", "b", least=2)
    taken(queue)
    queue.reject("a", plugins=("NodeResourcesFit", GANG))
    queue.reject("b", plugins=(GANG,))
    assert queue.state("a") is queue.state("b") is PodState.UNSCHEDULABLE
    assert taken(queue) == []
    queue.now += 5.0
    queue.change(POD_DELETED)
    assert answered(queue) == of_gang(2, "a", "b")


def test_a_member_with_a_failed_binding_is_handed_out_alone() -> None:
    queue = a_gang("a", "b", least=2)
    taken(queue)
    queue.decide("a", "b")
    queue.forget("b")
    queue.at(queue.now + 5.0)
    assert taken(queue) == [("b", None)]


def test_assigned_members_count_until_they_are_deleted() -> None:
    queue = a_gang("a", least=2)
    other = member("other").on("n").build()
    queue.tell(ClusterChange(POD_ADDED, None, other))
    assert taken(queue) == [("a", None)]
    queue.reject("a")
    queue.tell(ClusterChange(POD_DELETED, other, None))
    queue.at(queue.now + 5.0)
    assert taken(queue) == []
    assert queue.state("a") is PodState.GATED


def test_members_of_a_bound_gang_are_not_held() -> None:
    queue = a_gang("a", "b", least=2)
    taken(queue)
    queue.decide("a", "b")
    for name in "ab":
        queue.tell(ClusterChange(POD_ADDED, None, member(name).on("n").build()))
        queue.tell(PodBound(uid(name)))
    queue.add(member("c"))
    assert taken(queue) == [("c", None)]


def test_a_members_own_gates_come_before_its_gangs() -> None:
    queue = a_gang("a", least=2)
    queue.add(member("b").gate("x"))
    assert taken(queue) == []
    queue.add(member("b"))
    assert answered(queue) == of_gang(2, "a", "b")


def test_cluster_events_do_not_move_held_members() -> None:
    queue = a_gang("a", least=2)
    before = queue.history("a")
    queue.change(POD_DELETED)
    assert queue.history("a") == before


def test_owners_are_told_after_the_groups_timeout() -> None:
    queue = Queue()
    queue.tell(group(2, timeout=10))
    queue.add(member("a"), member("b", of="none"))
    queue.now += 10.0
    said = [notice for notice in notices(queue.tell(Tick())) if not notice.told_as]
    assert [(notice.name, notice.reason, notice.patch) for notice in said] == [("a", "Unschedulable", True)]
    assert "1 of its pods exist" in said[0].message
    queue.now += GROUP_TIMEOUT
    assert [notice.name for notice in notices(queue.tell(Tick())) if notice.event] == ["b"]


def test_a_held_group_says_so_soon_on_one_of_its_pods() -> None:
    queue = Queue()
    queue.tell(group(3))
    queue.add(member("a"), member("b"))
    assert queue.core.next_deadline() == queue.now + FIRST_EVENT
    queue.now += FIRST_EVENT
    (said,) = notices(queue.tell(Tick()))
    assert (said.name, said.told_as, said.event, said.patch) == ("a", "WaitingForPodGroup", True, False)
    assert said.message.endswith("for 2 s: 2 of its pods exist, and at least 3 are needed")
    queue.now += 10.0
    assert notices(queue.tell(Tick())) == []


NAMES = [f"p{i}" for i in range(7)]
name_of = st.sampled_from(NAMES)


class Gangs(RuleBasedStateMachine):
    """Three groups are created, changed and deleted, and pods move between them."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = Queue()
        self.pods: dict[str, Pod] = {}
        self.ours: object = None
        self.versions = 0

    @rule(name=name_of, of=st.sampled_from(["g", "h", "r", ""]), gated=st.booleans())
    def appear_or_change(self, name: str, of: str, gated: bool) -> None:
        self.versions += 1
        gated = gated and (name not in self.pods or bool(self.pods[name].spec.scheduling_gates))
        made = pod(name).in_group("r") if of == "r" else member(name, of) if of else pod(name)
        told = made.label(v=str(self.versions))
        self.pods[name] = (told.gate("x") if gated else told).build()
        self.queue.add(self.pods[name])

    @rule(name=name_of, bound=st.booleans())
    def leave(self, name: str, bound: bool) -> None:
        told = self.pods.pop(name, None)
        if told is not None and bound:
            self.queue.tell(ClusterChange(POD_ADDED, None, told))
            self.queue.bound(name)
            self.queue.gone(name)
            self.queue.tell(ClusterChange(POD_DELETED, told, None))
        elif told is not None:
            self.queue.gone(name)

    @rule(of=st.sampled_from("gh"), least=st.integers(0, 5), timeout=st.sampled_from([None, 1, 30]))
    def see(self, of: str, least: int, timeout: int | None) -> None:
        self.queue.tell(group(least, timeout, of))

    @rule(priority=st.sampled_from([None, 0, 5]), topology=st.booleans(), least=st.integers(0, 3))
    def see_ours(self, priority: int | None, topology: bool, least: int) -> None:
        """The group `r` of Kubernetes' own API, which may decide for members that go alone otherwise."""
        policy = {"gang": {"minCount": least}} if least else {"basic": {}}
        racks = {"schedulingConstraints": {"topology": [{"key": "rack"}]}} if topology else {}
        raw = {"metadata": {"name": "r"}, "spec": {"schedulingPolicy": policy, "priority": priority} | racks}
        now = object_from(ObjectKind.POD_GROUP, raw)
        self.queue.tell(ClusterChange(ClusterEvent(Resource.POD_GROUP, Action.UPDATE), self.ours, now))
        self.ours = now

    @rule(of=st.sampled_from("gh"))
    def lose(self, of: str) -> None:
        self.queue.tell(no_group(of))

    @rule(most=st.integers(1, 5))
    def take(self, most: int) -> None:
        by_gang: dict[str, list[int]] = {}
        for _, gang in taken(self.queue, most):
            if gang is not None:
                by_gang.setdefault(gang.key, []).append(gang.least)
        assert all(len(leasts) >= leasts[0] for leasts in by_gang.values())

    @rule(
        told=st.lists(name_of, max_size=4),
        what=st.sampled_from(["decide", "reject", "fail", "forget", "gang", "preempt", "activate", "evicted"]),
    )
    def report(self, told: list[str], what: str) -> None:
        if what == "gang":
            self.queue.reject(*told, plugins=(GANG,))
        elif what == "preempt":
            self.queue.reject(*told, nominated="n", preemption=1)
        elif what == "activate":
            self.queue.tell(Activate([uid(name) for name in told]))
        elif what == "evicted":
            for name in told:
                self.queue.evicted(name, 1)
        else:
            getattr(self.queue, what)(*told)

    @rule(seconds=st.sampled_from([0.3, 2.5, 61.0, 301.0]))
    def wait(self, seconds: float) -> None:
        self.queue.at(self.queue.now + seconds)

    @rule()
    def change(self) -> None:
        self.queue.change()

    @rule()
    def begin_a_new_cycle(self) -> None:
        self.queue.epoch += 1
        self.queue.takes = 0
        taken(self.queue, 2)

    def teardown(self) -> None:
        """Once the groups are there and need no more than there are, all pods without gates get a state."""
        queue = self.queue
        self.see_ours(None, True, 2)
        queue.add(pod("r1").in_group("r"), pod("r2").in_group("r"))
        for of in "gh":
            queue.tell(group(2, None, of))
            queue.add(member(f"{of}1", of), member(f"{of}2", of))
        wanted = {name for name, told in self.pods.items() if not told.spec.scheduling_gates}
        queue.epoch += 1
        queue.takes = 0
        placed: set[str] = set()
        for _ in range(30):
            names = [name for name, _ in taken(queue)]
            queue.decide(*names)
            placed |= set(names)
            queue.at(queue.now + 40.0)
        assert placed >= wanted | {"g1", "g2", "h1", "h2", "r1", "r2"}


TestGangs = Gangs.TestCase
TestGangs.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def ranked(priority: int | None, name: str = "r") -> ClusterChange:
    raw = {"metadata": {"name": name}, "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}, "priority": priority}}
    return ClusterChange(ClusterEvent(Resource.POD_GROUP, Action.ADD), None, object_from(ObjectKind.POD_GROUP, raw))


def names(queue: Queue) -> list[str]:
    return [name for name, _ in taken(queue)]


def test_a_gang_stands_where_its_groups_priority_says_and_not_its_members() -> None:
    queue = Queue()
    queue.tell(ranked(5))
    queue.add("first", pod("high").priority(9), pod("a").in_group("r"), pod("b").in_group("r").priority(100))
    queue.add(pod("middle").priority(4))
    assert names(queue) == ["high", "b", "a", "middle", "first"]


def test_members_that_came_before_their_group_get_its_place() -> None:
    queue = Queue()
    queue.add("first", pod("a").in_group("r"), pod("b").in_group("r"))
    queue.tell(ranked(5))
    assert names(queue) == ["a", "b", "first"]


def test_a_group_that_changes_its_priority_moves_with_its_members() -> None:
    queue = Queue()
    queue.tell(ranked(None))
    queue.add(pod("x").priority(3), pod("a").in_group("r"), pod("b").in_group("r"))
    before = ranked(None).now
    queue.tell(ClusterChange(ClusterEvent(Resource.POD_GROUP, Action.UPDATE), before, ranked(5).now))
    assert names(queue) == ["a", "b", "x"]


def test_a_gang_that_grows_and_loses_a_member_is_filled_up_to_its_minimum_together_and_beyond_it_alone() -> None:
    queue = a_gang("a", "b", "c", least=3)
    taken(queue)
    queue.decide("a", "b", "c")
    queue.add(member("d"))
    assert taken(queue) == [("d", None)]
    queue.decide("d")
    queue.gone("a")
    assert taken(queue) == []
    queue.gone("b")
    queue.add(member("a2"))
    assert answered(queue) == [("a2", None)], "two remain and one is missing"
    queue.reject("a2")
    queue.gone("c")
    queue.add(member("b2"))
    queue.at(queue.now + 10.0)
    assert taken(queue) == of_gang(2, "a2", "b2")


def test_gates_of_a_quota_are_removed_one_by_one_and_the_gang_comes_whole_with_the_last() -> None:
    """As Kueue does: pods are created with a gate each, and admitted one after the other."""
    queue = Queue()
    queue.tell(group(3))
    gated = {name: member(name).gate("kueue.x-k8s.io/admission") for name in "abc"}
    queue.add(*gated.values())
    assert taken(queue) == []
    for name in "ab":
        queue.add(versioned(member(name), "2"))
        assert answered(queue) == []
        assert queue.state(name) is PodState.GATED
    queue.add(versioned(member("c"), "2"))
    assert answered(queue) == of_gang(3, "a", "b", "c")
