"""The snapshot judges by what the watch shows of a pod: a commit that says otherwise is refused."""

from collections.abc import Callable

import msgspec
import pytest
from msgspec.structs import replace

from services.snapshot.core import SnapshotCore
from services.snapshot.events import CommitFault, Effect, NodeSeen, WorkerFault
from services.snapshot.state.pending_pods import MAX_UNUSED, MAX_UNUSED_BYTES, PendingPods
from services.snapshot.watch_decoder import WatchDecoder
from shared.messages.state import Assignment, Commit, Decision, Nominate
from shared.messages.watch import Kind, PodChange, Unreadable
from shared.model.load import load_of
from shared.model.objects import ContainerStatus, Pod, ResourceRequirements, Volume, encode_msgpack
from shared.model.pod import AwsElasticBlockStore, EphemeralSource
from shared.model.quantity import parse_quantity
from shared.model.resources import filter_requests
from testing.builders import expr, node, pod
from tests.rounds.support import reassigned, refusals, reply

PROFILE = "default-scheduler"


def shown(of: Pod) -> PodChange:
    scheduler, where = of.spec.scheduler_name, of.spec.node_name
    body = msgspec.Raw(encode_msgpack(of))
    return PodChange(of.uid, of.namespace, of.name, scheduler, where, body=body)


class Owner:
    """A snapshot that has seen a node with room for one large pod, and some pods."""

    def __init__(self, *pods: Pod) -> None:
        self.pending = PendingPods()
        self.core = SnapshotCore(1, pending=self.pending)
        self.decoder = WatchDecoder(frozenset({PROFILE}), self.core.is_bound, self.pending)
        self.core.handle(NodeSeen(node("n").capacity(cpu=4, memory="8Gi").build()), 0.0)
        for each in pods:
            self.see(shown(each))

    def see(self, change: PodChange | Unreadable) -> None:
        event = self.decoder.decode(change)
        if event is not None:
            self.core.handle(event, 0.0)
        self.pending.validate()

    def commits(
        self, of: Pod, said: Pod | None = None, asks: dict[str, int] | None = None, **fields: object
    ) -> list[Effect]:
        """A decision for a pod, which is said to be so."""
        said = of if said is None else said
        decision = Decision(Assignment(of.uid, of.namespace, of.name, said.spec.scheduler_name, "n"), 0, self.core.seq)
        decision = replace(reassigned(decision, **fields), worker="w", asks=asks)
        self.number = getattr(self, "number", 0) + 1
        return self.core.handle(Commit(1, self.number, [load_of(said)], [decision]), 0.0)


def a_pod(cpu: str = "1") -> Pod:
    return pod("p").label({"app": "web"}).request(cpu=cpu).build()


def misstated(effects: list[Effect]) -> list[str]:
    return [each.what for each in effects if isinstance(each, CommitFault)]


def test_a_pod_that_is_as_the_commit_says_is_placed() -> None:
    owner = Owner(a_pod())
    assert refusals(owner.commits(a_pod())) == {}
    assert a_pod().uid in owner.core.ledger


@pytest.mark.parametrize(
    ("forge", "why"),
    [
        (lambda of: pod("p").label({"app": "web"}).build(), "it requests something else"),
        (lambda of: replace(of, spec=replace(of.spec, priority=2_000_000_000)), "its priority is 0"),
        (lambda of: replace(of, spec=replace(of.spec, scheduler_name="lax")), "its scheduler is default-scheduler"),
        (
            lambda of: pod("p").label({"app": "web"}).request(cpu="1").host_port(80).build(),
            "it has other ports, volumes",
        ),
    ],
)
def test_a_forged_pod_is_refused_and_no_worker_is_blamed(forge: Callable[[Pod], Pod], why: str) -> None:
    owner = Owner(a_pod())
    effects = owner.commits(a_pod(), forge(a_pod()))
    ((reason, placed),) = refusals(effects).values()
    assert why in reason
    assert not placed
    (what,) = misstated(effects)
    assert what.startswith("pod default/p: ")
    assert not [each for each in effects if isinstance(each, WorkerFault)]
    assert owner.core.ledger == {}


@pytest.mark.parametrize("asks", [{}, {"cpu": 0}])
def test_the_requests_in_a_commit_do_not_count(asks: dict[str, int]) -> None:
    """A load that is true, and asks that would fit anywhere."""
    owner = Owner(a_pod("100"))
    assert misstated(owner.commits(a_pod("100"), asks=asks)) == ["pod default/p: it requests something else"]
    assert owner.core.ledger == {}


def resizing(of: Pod, cpu: str) -> Pod:
    """As the kubelet reports of its only container."""
    requests = {"cpu": parse_quantity(cpu)}
    status = ContainerStatus(
        name=of.spec.containers[0].name,
        resources=ResourceRequirements(requests=requests),
        allocated_resources=requests,
    )
    return replace(of, status=replace(of.status, container_statuses=[status]))


def test_a_pod_that_requests_nothing_and_counts_by_its_status_is_placed() -> None:
    """Nothing must be free for it, which is not the same as what it counts with."""
    of = resizing(pod("p").build(), "1")
    assert (filter_requests(of), load_of(of).requests) == ({}, {"cpu": 1000})
    owner = Owner(of)
    assert misstated(owner.commits(of)) == ["pod default/p: it requests something else"]
    effects = owner.commits(of, asks={})
    assert (refusals(effects), misstated(effects)) == ({}, [])


def test_a_pod_that_the_watch_has_not_shown_yet_is_a_conflict_and_no_fault() -> None:
    owner = Owner()
    effects = owner.commits(a_pod())
    assert list(refusals(effects).values()) == [("the watch has not shown this pod as pending", False)]
    assert misstated(effects) == []
    owner.see(shown(a_pod()))
    assert refusals(owner.commits(a_pod())) == {}


def test_labels_that_have_changed_since_are_no_reason() -> None:
    owner = Owner(pod("p").label({"app": "other"}).request(cpu="1").build())
    assert refusals(owner.commits(a_pod())) == {}


def test_a_pod_with_preemption_policy_never_is_nominated_without_victims() -> None:
    meek = replace(a_pod(), spec=replace(a_pod().spec, preemption_policy="Never"))
    owner = Owner(meek)
    wanted = Nominate(Assignment(meek.uid, "default", "p", PROFILE, "n"), 0, owner.core.seq)
    effects = owner.core.handle(Commit(1, 1, [load_of(meek)], [], [wanted]), 0.0)
    assert misstated(effects) == ["pod default/p: its preemptionPolicy is Never"]
    effects = owner.core.handle(Commit(1, 2, [load_of(meek)], [], [replace(wanted, never=True)]), 0.0)
    assert refusals(effects) == {}


def test_pods_of_a_kind_are_known_by_one_entry() -> None:
    pending = PendingPods()
    changes = [shown(pod(f"p{number}").label({"app": "web"}).request(cpu="1").build()) for number in range(100)]
    for change in changes:
        pending.upsert(change)
    assert (len(pending), pending.shapes) == (100, 1)
    pending.upsert(shown(pod("p0").label({"app": "web"}).request(cpu="2").build()))
    assert pending.shapes == 2
    for change in changes:
        pending.remove(change.uid)
        pending.validate()
    assert (len(pending), pending.shapes) == (0, 2)
    pending.upsert(changes[0])
    pending.validate()
    assert (len(pending), pending.shapes) == (1, 2)


def test_of_the_kinds_that_no_pod_has_the_last_ones_are_kept() -> None:
    pending = PendingPods()
    waiting = shown(pod("waiting").request(cpu="1").build())
    pending.upsert(waiting)
    for number in range(MAX_UNUSED + 2):
        change = shown(pod("p").request(cpu=str(number + 2)).build())
        pending.upsert(change)
        pending.remove(change.uid)
        pending.validate()
    assert (len(pending), pending.shapes) == (1, MAX_UNUSED + 1)
    assert pending.requests(waiting.uid) is not None


def test_kinds_that_no_pod_has_take_a_bounded_number_of_bytes() -> None:
    pending = PendingPods()
    for number in range(MAX_UNUSED):
        names = [f"{number}-{'x' * 200}-{each}" for each in range(100)]
        change = shown(pod("p").require_node(expr("metadata.name", "In", *names)).build())
        pending.upsert(change)
        pending.remove(change.uid)
        pending.validate()
    assert MAX_UNUSED_BYTES // 30_000 < pending.shapes < MAX_UNUSED_BYTES // 20_000


def with_volume(name: str, volume: Volume) -> Pod:
    """As an API server shows a pod of a StatefulSet: a label with its name, and a volume with a token."""
    token = Volume(name=f"kube-api-access-{name}")
    built = pod(name).label({"app": "web", "statefulset.kubernetes.io/pod-name": name}).request(cpu="1").build()
    return replace(built, spec=replace(built.spec, volumes=[token, volume]))


def test_fields_that_concern_no_other_pod_do_not_matter_to_the_shape() -> None:
    pending = PendingPods()
    for number in range(10):
        pending.upsert(shown(with_volume(f"p{number}", Volume(name="scratch"))))
    assert pending.shapes == 1
    for number in range(10, 12):
        disk = AwsElasticBlockStore(volume_id=f"disk{number}")
        pending.upsert(shown(with_volume(f"p{number}", Volume(name="data", aws_elastic_block_store=disk))))
    assert pending.shapes == 3
    for number in range(12, 14):
        pending.upsert(shown(with_volume(f"p{number}", Volume(name="data", ephemeral=EphemeralSource()))))
    assert pending.shapes == 5


def test_only_pods_of_ours_that_wait_and_can_be_read_are_known() -> None:
    owner = Owner(a_pod())
    assert owner.pending.requests(a_pod().uid) is not None
    owner.see(shown(replace(a_pod(), spec=replace(a_pod().spec, node_name="n"))))
    assert owner.pending.requests(a_pod().uid) is None
    owner.see(shown(a_pod()))
    owner.see(Unreadable(Kind.POD, a_pod().uid, "default", "p", "an odd field", PROFILE))
    assert owner.pending.requests(a_pod().uid) is None
    owner.see(shown(a_pod()))
    owner.see(PodChange(a_pod().uid, "default", "p", gone=True))
    assert owner.pending.requests(a_pod().uid) is None
    owner.see(shown(replace(a_pod(), spec=replace(a_pod().spec, scheduler_name="another"))))
    assert owner.pending.requests(a_pod().uid) is None


def test_a_body_that_is_none_makes_the_pod_unknown() -> None:
    pending = PendingPods()
    pending.upsert(shown(a_pod()))
    pending.upsert(replace(shown(a_pod()), body=msgspec.Raw(b"\xc1")))
    assert pending.requests(a_pod().uid) is None
    pending.validate()


def test_a_pod_that_is_deleted_is_gone_for_a_commit_and_one_that_was_never_shown_is_not() -> None:
    here, unseen = a_pod(), pod("unseen").request(cpu=1).build()
    owner = Owner(here)
    owner.see(replace(shown(here), gone=True))
    told = {conflict.uid: conflict for of in (here, unseen) for conflict in reply(owner.commits(of)).conflicts}
    assert {uid: conflict.gone for uid, conflict in told.items()} == {here.uid: True, unseen.uid: False}
    owner.see(shown(here))
    assert not refusals(owner.commits(here))
