"""Pods that wait for devices are requeued by events of claims, slices and classes."""

from itertools import count
from typing import Any

import msgspec
import pytest

from flotilla.events import Action, Resource
from services.queue.core import QueueCore
from services.queue.events import Tick, WatchEvents
from services.queue.scheduling.claims_ahead import MAX_CLAIMS
from services.queue.scheduling.in_flight_events import MAX_HINTS, Position
from services.queue.scheduling.queued_pod_info import PodState
from services.queue.watch_decoder import WatchDecoder
from shared.config.reading import load_config
from shared.framework.clusterevents import ClusterEvent
from shared.framework.profile import Framework
from shared.messages.binding import ClaimRelease
from shared.messages.queue import Absorbed, ClaimRef, QueuedClaims
from shared.messages.watch import ObjectChange
from shared.model.devices import EXTENDED_RESOURCE_CLAIM
from shared.model.objects import ObjectKind, Pod, encode_msgpack, key_of, object_from, pod_from
from shared.plugins.registry import in_tree
from testing.builders import pod
from testing.inprocess.batches import pods_in
from tests.queue.support import FIT, FRAMEWORKS, Queue, notices

WAITING = pod("p").resource_claim("r", "mine")
WAITING_TOO = pod("q").resource_claim("r", "mine")
PLUGIN = ("DynamicResources",)
ALLOCATED: Any = {"allocation": {"devices": {"results": [{"request": "r", "driver": "d", "device": "gpu-0"}]}}}
MOVED: Any = {"allocation": {"devices": {"results": [{"request": "r", "driver": "d", "device": "gpu-1"}]}}}
RESERVED: Any = {"reservedFor": [{"resource": "pods", "name": "q", "uid": "u"}]}


def an_object(kind: ObjectKind, name: str, *, status: Any = None, spec: Any = None, **metadata: Any) -> ObjectChange:
    plain = {"metadata": {"name": name, "uid": f"{name}-uid", **metadata}, "status": status, "spec": spec or {}}
    obj = object_from(kind, {part: value for part, value in plain.items() if value is not None})
    return ObjectChange(kind, key_of(obj), body=msgspec.Raw(encode_msgpack(obj)))


def a_claim(name: str = "mine", status: Any = None, **metadata: Any) -> ObjectChange:
    return an_object(ObjectKind.RESOURCE_CLAIM, name, status=status, **metadata)


def a_slice(generation: int = 1, **metadata: Any) -> ObjectChange:
    return an_object(ObjectKind.RESOURCE_SLICE, "s", spec={"pool": {"name": "n", "generation": generation}}, **metadata)


def a_class(resource: str | None = None) -> ObjectChange:
    return an_object(ObjectKind.DEVICE_CLASS, "gpu", spec={"extendedResourceName": resource})


class Cluster:
    """The core behind a WatchDecoder, as in the service."""

    def __init__(self, *known: ObjectChange, core: QueueCore | None = None) -> None:
        self.queue = Queue()
        self.queue.core = core or self.queue.core
        self._decoder = WatchDecoder(self.queue.core.objects)
        self.tell(*known)

    def tell(self, *changes: ObjectChange) -> None:
        for change in changes:
            for seen in self._decoder.decode(change, self.queue.now):
                self.queue.tell(seen)

    def tell_at(self, position: Position, change: ObjectChange) -> None:
        """In a message of the watcher at this position of its stream."""
        self.queue.tell(WatchEvents(self._decoder.decode(change, self.queue.now), at=position))

    def rejects(self, waiting: Any, plugins: tuple[str, ...] = PLUGIN) -> None:
        self.queue.add(waiting)
        self.queue.take()
        self.queue.reject("p", plugins=plugins)
        self.queue.at(110.0)

    def woken_by(self, change: ObjectChange) -> bool:
        assert self.queue.state("p") is PodState.UNSCHEDULABLE
        self.tell(change)
        return self.queue.state("p") is PodState.ACTIVE


@pytest.mark.parametrize(
    ("known", "change", "woken"),
    [
        ([a_claim()], a_claim(status=ALLOCATED), True),
        ([a_claim(status=ALLOCATED)], a_claim(status=MOVED), True),
        ([a_claim(status=ALLOCATED)], a_claim(status=ALLOCATED | RESERVED), True),
        ([a_claim(status=ALLOCATED)], a_claim(status=ALLOCATED), False),
        ([a_claim()], a_claim(labels={"a": "b"}), False),
        ([a_claim(), a_claim("other")], a_claim("other", ALLOCATED), False),
        ([a_claim(), a_claim("other", ALLOCATED)], a_claim("other"), True),
        (
            [a_claim(), a_claim("other", ALLOCATED)],
            ObjectChange(ObjectKind.RESOURCE_CLAIM, "default/other", True),
            True,
        ),
        ([a_claim(), a_claim("other")], ObjectChange(ObjectKind.RESOURCE_CLAIM, "default/other", True), False),
        ([a_claim()], a_slice(), True),
        ([a_claim(), a_slice()], a_slice(2), True),
        ([a_claim(), a_slice()], a_slice(uid="another"), True),
        ([a_claim(), a_slice()], a_slice(labels={"a": "b"}), False),
        ([a_claim(), a_slice()], ObjectChange(ObjectKind.RESOURCE_SLICE, "s", True), False),
        ([a_claim()], a_class(), True),
        ([a_claim(), a_class()], a_class("example.com/gpu"), True),
        ([a_claim(), a_class()], a_class(), False),
    ],
)
def test_pods_that_wait_for_devices_are_requeued_by_events_that_may_free_some(
    known: list[ObjectChange], change: ObjectChange, woken: bool
) -> None:
    cluster = Cluster(*known)
    cluster.rejects(WAITING)
    assert cluster.woken_by(change) is woken


@pytest.mark.parametrize(("failed", "woken"), [(WAITING_TOO, True), (pod("q"), False)])
def test_pods_that_wait_for_devices_are_requeued_when_an_attempt_that_was_given_some_fails(
    failed: Any, woken: bool
) -> None:
    """No claim shows it: the allocation was never written."""
    cluster = Cluster(a_claim())
    cluster.rejects(WAITING)
    cluster.queue.add(failed)
    cluster.queue.take()
    cluster.queue.decide("q")
    cluster.queue.forget("q")
    assert (cluster.queue.state("p") is PodState.ACTIVE) is woken


def test_a_pod_is_requeued_once_the_claim_that_an_earlier_attempt_left_is_gone() -> None:
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "default/p", "controller": True}]
    special = a_claim("left", ownerReferences=owners, annotations={EXTENDED_RESOURCE_CLAIM: "true"})
    cluster = Cluster(special)
    cluster.rejects(pod("p").request({"example.com/gpu": 1}))
    assert cluster.woken_by(ObjectChange(ObjectKind.RESOURCE_CLAIM, "default/left", True))


def test_pods_that_wait_for_devices_are_requeued_when_a_pod_that_is_gone_gives_some_back() -> None:
    cluster = Cluster(a_claim())
    cluster.rejects(WAITING)
    cluster.queue.forget("gone")
    assert cluster.queue.state("p") is PodState.ACTIVE


def test_other_pods_are_not_requeued_by_devices() -> None:
    cluster = Cluster(a_claim())
    cluster.rejects(WAITING, ("NodeAffinity",))
    assert not cluster.woken_by(a_claim(status=ALLOCATED))
    assert not cluster.woken_by(a_slice())


def test_pods_that_wait_for_a_resource_are_requeued_by_a_class_that_extends_it() -> None:
    cluster = Cluster()
    cluster.rejects(pod("p").request({"example.com/gpu": 1}), FIT)
    assert not cluster.woken_by(a_class("example.com/other"))
    assert cluster.woken_by(a_class("example.com/gpu"))


# PreEnqueue


def test_a_pod_is_gated_until_its_claim_exists() -> None:
    cluster = Cluster(a_claim("other", ALLOCATED))
    cluster.queue.add(WAITING)
    assert cluster.queue.state("p") is PodState.GATED
    cluster.tell(a_claim("other"), a_slice(), a_class())
    assert cluster.queue.state("p") is PodState.GATED
    cluster.tell(a_claim())
    assert cluster.queue.state("p") is PodState.ACTIVE


def test_a_pod_is_gated_until_the_snapshot_knows_its_claim() -> None:
    """The claim comes first, and then the pod's status that names it: workers may know neither."""
    cluster = Cluster()
    cluster.queue.add(templated("p", None))
    cluster.tell_at((3, 5), made_for("p"))
    cluster.queue.add(templated("p", "p-r"))
    assert cluster.queue.state("p") is PodState.GATED
    cluster.queue.tell(Absorbed(1, 70, 3, 4))
    assert cluster.queue.state("p") is PodState.GATED
    cluster.queue.tell(Absorbed(1, 71, 3, 5))
    assert cluster.queue.state("p") is PodState.ACTIVE
    cluster.tell_at((3, 6), made_for("q"))
    cluster.queue.tell(Absorbed(1, 72, 3, 6))
    cluster.queue.add(templated("q", "q-r"))
    assert list(claims_handed_out(cluster)) == ["p", "q"]


def test_a_pod_does_not_wait_for_a_claim_that_a_watcher_told_which_was_deposed_by_an_earlier_one() -> None:
    """Its Lease was deleted, so terms begin again: the snapshot, which was away, never applies what it told last."""
    cluster = Cluster()
    cluster.tell_at((102, 4), a_claim("known"))
    cluster.queue.tell(Absorbed(1, 60, 102, 4))
    cluster.tell_at((102, 5), a_claim("last"))
    cluster.queue.add(pod("q").resource_claim("r", "last"))
    assert cluster.queue.state("q") is PodState.GATED
    cluster.queue.tell(Absorbed(1, 70, 100, 50))
    cluster.tell_at((100, 60), a_claim())
    cluster.queue.add(WAITING)
    cluster.queue.tell(Absorbed(1, 71, 100, 60))
    assert (cluster.queue.state("p"), cluster.queue.state("q")) == (PodState.ACTIVE, PodState.ACTIVE)


def test_a_pod_whose_new_claim_is_replaced_before_the_snapshot_knows_it_is_let_go() -> None:
    """Its deletion was missed, so no hint takes the other one for an event that helps."""
    cluster = Cluster()
    cluster.tell_at((3, 5), a_claim())
    cluster.queue.add(WAITING)
    cluster.tell_at((3, 6), a_claim(uid="another"))
    cluster.queue.tell(Absorbed(1, 70, 3, 6))
    assert cluster.queue.state("p") is PodState.ACTIVE


def test_claims_that_the_snapshot_does_not_know_yet_are_remembered_in_limited_numbers() -> None:
    cluster = Cluster()
    ahead = cluster.queue.core._queue.claims_ahead
    for i in range(100):
        cluster.tell_at((3, 1 + 2 * i), a_claim(f"c{i}"))
        cluster.tell_at((3, 2 + 2 * i), ObjectChange(ObjectKind.RESOURCE_CLAIM, f"default/c{i}", True))
    assert not ahead._created_at, "those that are gone are forgotten"
    for i in range(MAX_CLAIMS + 1):
        ahead.add(f"default/c{i}", (4, i + 1))
    assert len(ahead._created_at) == MAX_CLAIMS


def test_a_profile_without_dynamic_resources_waits_for_no_claim() -> None:
    (profile,) = load_config(None).profiles
    framework = Framework(profile, in_tree())
    framework.pre_enqueue = [plugin for plugin in framework.pre_enqueue if plugin.name not in PLUGIN]
    cluster = Cluster(core=QueueCore({framework.name: framework}))
    cluster.tell_at((3, 5), a_claim())
    cluster.queue.add(WAITING)
    assert cluster.queue.state("p") is PodState.ACTIVE


def test_a_pod_whose_claim_is_being_deleted_is_gated() -> None:
    cluster = Cluster(a_claim(deletionTimestamp="2026-01-01T00:00:00Z"))
    cluster.queue.add(WAITING)
    assert cluster.queue.state("p") is PodState.GATED


# What the cycle gets


def templated(name: str, claim: str | None) -> Pod:
    """A pod with a claim from a template, by this name once there is one."""
    statuses = [] if claim is None else [{"name": "r", "resourceClaimName": claim}]
    return pod_from(
        {
            "metadata": {"name": name, "namespace": "default", "uid": f"default/{name}"},
            "spec": {"resourceClaims": [{"name": "r", "resourceClaimTemplateName": "t"}]},
            "status": {"resourceClaimStatuses": statuses},
        }
    )


def made_for(name: str, wanted: str = "gpu", status: Any = None) -> ObjectChange:
    """The claim of this pod, for a device of this class."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"default/{name}", "controller": True}
    spec = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": wanted}}]}}
    return an_object(ObjectKind.RESOURCE_CLAIM, f"{name}-r", status=status, spec=spec, ownerReferences=[owner])


def claims_handed_out(cluster: Cluster) -> dict[str, QueuedClaims | None]:
    batch = cluster.queue.ask()
    assert batch is not None
    return {each.name: queued.claims for each, queued in zip(pods_in(batch), batch.pods, strict=True)}


def test_pods_of_a_template_share_the_content_of_their_claims() -> None:
    cluster = Cluster(made_for("a"), made_for("b"), made_for("c", "fpga"), made_for("d", status=ALLOCATED))
    cluster.queue.add(*(templated(name, f"{name}-r") for name in "abcd"), pod("plain"))
    claims = claims_handed_out(cluster)
    assert claims["plain"] is None
    a, b, c, d = (claims[name] for name in "abcd")
    assert a is not None and b is not None and c is not None and d is not None
    assert a.claims == [ClaimRef("default/a-r", "a-r-uid")]
    assert b.claims == [ClaimRef("default/b-r", "b-r-uid")]
    assert a.content == b.content
    assert len({a.content, c.content, d.content}) == 3


def test_a_pod_needs_no_claim_where_none_is_needed() -> None:
    cluster = Cluster()
    without = pod_from(
        {
            "metadata": {"name": "p", "namespace": "default", "uid": "default/p"},
            "spec": {"resourceClaims": [{"name": "r", "resourceClaimTemplateName": "t"}]},
            "status": {"resourceClaimStatuses": [{"name": "r"}]},
        }
    )
    cluster.queue.add(without)
    claims = claims_handed_out(cluster)["p"]
    assert claims is not None and claims.claims == []


def test_a_claim_that_is_gone_when_its_pod_is_handed_out_is_not_named() -> None:
    cluster = Cluster(a_claim())
    cluster.queue.add(WAITING)
    cluster.tell(ObjectChange(ObjectKind.RESOURCE_CLAIM, "default/mine", True))
    claims = claims_handed_out(cluster)["p"]
    assert claims is not None and claims.claims == []


# What PostFilter takes back


def releases(cluster: Cluster, **told: Any) -> list[ClaimRelease]:
    """What the binder is asked to release after this outcome of the pod."""
    cluster.queue.add(WAITING)
    cluster.queue.take()
    (notice,) = notices(cluster.queue.reject("p", plugins=PLUGIN, **told))
    return notice.releases


def test_the_first_allocated_claim_is_to_give_back_its_devices() -> None:
    cluster = Cluster(a_claim(), a_claim("other", ALLOCATED), a_claim("third", MOVED))
    claims = cluster.queue.core.objects.devices.claims
    (release,) = releases(cluster, deallocate=("default/gone", "default/mine", "default/other", "default/third"))
    assert release == ClaimRelease("default/other", "other-uid", claims["default/other"].status.allocation)


@pytest.mark.parametrize("has_placed", [False, True])
def test_a_claim_of_the_group_is_given_back_if_no_member_has_a_node(has_placed: bool) -> None:
    consumer = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "uid-g"}
    cluster = Cluster(a_claim(status={**ALLOCATED, "reservedFor": [consumer]}), a_claim("other", MOVED))
    queue = cluster.queue
    cluster.tell(an_object(ObjectKind.POD_GROUP, "g", spec={"schedulingPolicy": {"basic": {}}}))
    if has_placed:
        queue.core.groups.observe(None, pod("fellow").in_group("g").on("n").build())
    queue.add(WAITING.in_group("g"))
    queue.take()
    (notice,) = notices(queue.reject("p", plugins=PLUGIN, deallocate=("default/mine", "default/other")))
    released = [(each.key, each.group) for each in notice.releases]
    assert released == [("default/other", "") if has_placed else ("default/mine", "g")]


@pytest.mark.parametrize("why_not", ["", "a stranger uses it", "a member has a node"])
def test_a_claim_that_waiting_members_have_reserved_is_given_back_if_no_member_has_a_node(why_not: str) -> None:
    """Their attempts failed after PreBind, and its devices are of no use for the gang by now."""
    users = [{"resource": "pods", "name": name, "uid": f"default/{name}"} for name in ("q", "r")]
    cluster = Cluster(a_claim(status={**ALLOCATED, "reservedFor": users}))
    queue = cluster.queue
    cluster.tell(an_object(ObjectKind.POD_GROUP, "g", spec={"schedulingPolicy": {"gang": {"minCount": 2}}}))
    if why_not == "a member has a node":
        queue.core.groups.observe(None, pod("fellow").in_group("g").on("n").build())
    names = ("p", "q") if why_not == "a stranger uses it" else ("p", "q", "r")
    queue.add(*(pod(name).resource_claim("r", "mine").in_group("g") for name in names))
    queue.take()
    (notice,) = notices(queue.reject("p", plugins=PLUGIN, deallocate=("default/mine",)))
    released = [(each.key, each.group, each.members) for each in notice.releases]
    assert released == ([] if why_not else [("default/mine", "", ["default/q", "default/r"])])


@pytest.mark.parametrize("minimum", [1, 2])
def test_pods_that_wait_for_devices_are_tried_again_once_the_last_pod_of_their_group_with_a_node_is_gone(
    minimum: int,
) -> None:
    cluster = Cluster(a_claim(), a_claim("other"))
    queue = cluster.queue
    policy = {"schedulingPolicy": {"gang": {"minCount": minimum}}}
    cluster.tell(an_object(ObjectKind.POD_GROUP, "g", spec=policy))
    fellows = [pod(name).in_group("g").on("n").build() for name in ("x", "y")]
    for fellow in fellows:
        queue.change(ClusterEvent(Resource.ASSIGNED_POD, Action.ADD), None, fellow)
    queue.add(WAITING.in_group("g"))
    queue.add(WAITING_TOO.in_group("g"))
    queue.take()
    queue.reject("p", plugins=PLUGIN)
    queue.reject("q", plugins=PLUGIN)
    queue.change(ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE), fellows[0])
    assert {queue.state(name) for name in "pq"} == {PodState.UNSCHEDULABLE}
    queue.change(ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE), fellows[1])
    assert {queue.state(name) for name in "pq"} <= {PodState.ACTIVE, PodState.BACKOFF}


def test_left_claims_for_extended_resources_are_to_be_deleted() -> None:
    cluster = Cluster(a_claim(), a_claim("left", ALLOCATED))
    found = releases(cluster, delete=("default/left", "default/gone"))
    assert found == [ClaimRelease("default/left", "left-uid")]


def test_claims_are_to_be_released_once_though_the_condition_is_sent_again() -> None:
    cluster = Cluster(a_claim(status=ALLOCATED))
    assert releases(cluster, deallocate=("default/mine",))
    for _ in range(12):
        cluster.queue.now += 1.0
        again = notices(cluster.queue.tell(Tick()))
        if again:
            assert [notice.releases for notice in again] == [[]]
            return
    raise AssertionError("the condition is not sent again")


def test_a_claim_is_asked_about_for_the_pods_that_use_it_only() -> None:
    """A thousand pods wait for claims of their own, and the claims come one by one: no hint for each pair of them."""
    cluster = Cluster(core=QueueCore(FRAMEWORKS, stopwatch=count().__next__))
    names = [f"p{i}" for i in range(1_000)]
    cluster.queue.add(*(pod(name).resource_claim("r", name) for name in names))
    assert {cluster.queue.state(name) for name in names} == {PodState.GATED}
    for name in names:
        cluster.tell(a_claim(name))
    assert {cluster.queue.state(name) for name in names} == {PodState.ACTIVE}
    assert len(cluster.queue.core.hint_calls) == 1_000


def test_claims_of_others_do_not_count_as_judged_in_vain_for_a_pod_in_flight() -> None:
    cluster = Cluster(a_claim())
    cluster.queue.add(WAITING)
    cluster.queue.take()
    cluster.tell(*(a_claim(f"other-{i}") for i in range(MAX_HINTS + 1)))
    cluster.queue.reject("p", plugins=PLUGIN)
    assert cluster.queue.state("p") is PodState.UNSCHEDULABLE


# Pods that each name a claim of their own


def test_a_claim_is_private_while_no_other_pending_pod_names_it() -> None:
    cluster = Cluster(a_claim("one"), a_claim("two"))
    assert handed_out(cluster, pod("p").resource_claim("r", "one"), pod("q").resource_claim("r", "two")) == [True, True]
    assert handed_out(cluster, pod("second").resource_claim("r", "one")) == [False]
    cluster.queue.gone("p")
    cluster.queue.gone("second")
    assert handed_out(cluster, pod("third").resource_claim("r", "one")) == [True]
    assert handed_out(cluster, pod("fourth").resource_claim("r", "one").resource_claim("s", "two")) == [False]


def handed_out(cluster: Cluster, *pods: Any) -> list[bool]:
    """Whether their claims are private."""
    cluster.queue.add(*pods)
    batch = cluster.queue.ask()
    assert batch is not None
    return [queued.claims.private for queued in batch.pods if queued.claims is not None]
