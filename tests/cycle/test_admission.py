"""Which class a pod is found to have, and for which pods its body must be decoded."""

import sys

import msgspec
import pytest

from flotilla.plugin import ClassState, FilterPlugin, NodeView
from flotilla.results import Status
from services.cycle.extenders import Extenders
from services.cycle.round import admission
from services.cycle.round.admission import Admission, PodInfo
from shared.config.points import ExtensionPoint
from shared.config.structs import ExtenderConfig
from shared.framework.loading import load_frameworks
from shared.messages.queue import ClaimRef, Gang, QueuedClaims, QueuedPod, QueuedVolumes
from shared.messages.rounds import NominatedPod
from shared.model.load import claim_names, load_of
from shared.model.objects import (
    EphemeralSource,
    PersistentVolumeClaimSource,
    Pod,
    Volume,
    encode_msgpack,
    pod_from_msgpack,
)
from testing.builders import PodBuilder, pod
from testing.inprocess.batches import class_of, queued_pod
from tests.framework.plugins import ReadsNothing
from tests.rounds.support import framework_with

FRAMEWORKS = load_frameworks(None)
BASE = pod("p").label(app="web").container("c", image="web:1").request(cpu="1", memory="1Gi")


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the pods whose bodies are decoded."""
    names: list[str] = []
    decode = pod_from_msgpack

    def counting(body: msgspec.Raw) -> Pod:
        found = decode(body)
        names.append(found.name)
        return found

    monkeypatch.setattr(admission, "pod_from_msgpack", counting)
    return names


def admit(by: Admission, built: PodBuilder, gang: Gang | None = None) -> PodInfo:
    info, failure = by.admit(queued_pod(built.build(), gang), 3.0)
    assert failure is None
    return info


def refusal(by: Admission, built: PodBuilder) -> tuple[PodInfo, Status]:
    info, failure = by.admit(queued_pod(built.build()), 3.0)
    assert failure is not None
    return info, failure


def test_of_pods_with_one_template_only_the_first_is_decoded(decoded: list[str]) -> None:
    by = Admission(FRAMEWORKS, Extenders())
    first = admit(by, BASE)
    named = pod("q").label(app="web").container("c", image="web:1").request(cpu="1", memory="1Gi").uid("uid-of-q")
    second = admit(by, named)
    assert decoded == ["p"]
    assert second.template is first.template
    assert first.class_id == class_of(FRAMEWORKS["default-scheduler"], BASE.build())
    assert first.template.load == load_of(BASE.build())
    assert (second.uid, second.key, second.class_id) == ("uid-of-q", "default/q", first.class_id)
    assert second.pod == named.build()


@pytest.mark.parametrize(
    "different",
    [
        BASE.namespace("other"),
        BASE.label(app="db"),
        BASE.terminating(),
        BASE.owner("ReplicaSet", "web"),
        BASE.priority(5),
        BASE.claim("data"),
    ],
)
def test_every_field_that_a_plugin_may_read_makes_another_template(different: PodBuilder, decoded: list[str]) -> None:
    by = Admission(FRAMEWORKS, Extenders())
    admit(by, BASE)
    info = admit(by, different)
    assert len(decoded) == 2
    built = different.build()
    assert info.template.load == load_of(built)
    assert info.template.priority == built.priority


def test_nominated_pods_are_of_the_class_that_they_would_be_of_without(decoded: list[str]) -> None:
    by = Admission(FRAMEWORKS, Extenders())
    plain = admit(by, BASE)
    one, other = admit(by, BASE.uid("one").nominated("n1")), admit(by, BASE.uid("other").nominated("n2"))
    assert len(decoded) == 1
    assert one.class_id == other.class_id == plain.class_id
    assert (one.nominated, other.nominated) == (NominatedPod("one", "n1"), NominatedPod("other", "n2"))
    assert plain.nominated is None
    assert one.of_class.status.nominated_node_name == ""


def test_members_of_a_gang_are_judged_with_its_priority() -> None:
    by = Admission(FRAMEWORKS, Extenders())
    plain = admit(by, BASE)

    def member(priority: int | None, of: PodBuilder = BASE) -> PodInfo:
        return admit(by, of, Gang("g", 2, priority=priority))

    high, low, nominated = member(9), member(3), member(9, BASE.nominated("n1"))
    assert (high.of_class.priority, low.of_class.priority, nominated.of_class.priority) == (9, 3, 9)
    assert len({plain.class_id, high.class_id, low.class_id}) == 3
    assert nominated.class_id == high.class_id
    assert {each.class_id for each in (member(None), member(plain.template.priority))} == {plain.class_id}
    assert (high.pod.priority, high.template.priority, high.template.load.priority) == (0, 0, 0), "it is as it is"


def test_a_nominated_pod_with_a_claim_is_of_a_class_of_its_own() -> None:
    by = Admission(FRAMEWORKS, Extenders())
    base = BASE.claim("data")
    one, other = admit(by, base.uid("one").nominated("n1")), admit(by, base.uid("other").nominated("n1"))
    assert len({admit(by, base).class_id, one.class_id, other.class_id}) == 3
    assert one.nominated is None
    assert one.of_class == one.pod


def test_a_nominated_pod_can_be_judged_apart() -> None:
    info = admit(Admission(FRAMEWORKS, Extenders()), BASE.uid("one").nominated("n1"))
    shared = info.class_id
    info.judge_apart()
    apart = info.class_id
    info.judge_apart()
    assert info.class_id == apart != shared
    assert info.nominated is None
    assert info.of_class == info.pod


def test_the_least_recently_used_template_is_forgotten_first(
    decoded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "MAX_TEMPLATES", 2)
    by = Admission(FRAMEWORKS, Extenders())
    for cpu in "1213":
        admit(by, BASE.request(cpu=cpu))
    assert len(decoded) == 3
    admit(by, BASE.request(cpu="1"))
    assert len(decoded) == 3
    admit(by, BASE.request(cpu="2"))
    assert len(decoded) == 4


def test_templates_are_bounded_in_bytes(decoded: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies have up to half a MiB each, and are keys."""
    monkeypatch.setattr(admission, "MAX_TEMPLATE_BYTES", 100_000)
    by = Admission(FRAMEWORKS, Extenders())
    large = [BASE.label(l=str(number) + "x" * 30_000) for number in range(4)]
    for each in large:
        admit(by, each)
    assert len(decoded) == 4
    admit(by, large[3])
    assert len(decoded) == 4
    admit(by, large[0])
    assert len(decoded) == 5
    admit(by, BASE.label(l="x" * 200_000))
    admit(by, BASE.label(l="x" * 200_000))
    assert len(decoded) == 7
    admit(by, large[0])
    assert len(decoded) == 7


def test_an_extender_sees_every_pod() -> None:
    by = Admission(FRAMEWORKS, Extenders([ExtenderConfig("http://x", filter_verb="filter")]))
    one, other = admit(by, BASE), admit(by, BASE.uid("other"))
    assert one.class_id != other.class_id
    assert one.template is other.template


def test_a_gang_that_needs_no_further_member_is_none() -> None:
    by = Admission(FRAMEWORKS, Extenders())
    assert admit(by, BASE, Gang("default/g", 0)).gang is None
    assert admit(by, BASE, Gang("default/g", 1)).gang == Gang("default/g", 1)


def test_a_pod_of_no_profile_is_refused_and_known_by_name() -> None:
    info, failure = refusal(Admission(FRAMEWORKS, Extenders()), BASE.scheduler("nobody"))
    assert failure.message == "Pod default/p: spec.schedulerName: there is no profile 'nobody'"
    assert (info.uid, info.template.profile) == (BASE.build().uid, "nobody")


@pytest.mark.parametrize("body", [b"", b"\x00", encode_msgpack({"metadata": 3}), encode_msgpack(["no map"])])
def test_a_body_that_is_no_pod_is_an_error(body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        Admission(FRAMEWORKS, Extenders()).admit(QueuedPod(msgspec.Raw(body), 1, 0.0, 0.0), 0.0)


def test_a_body_that_cannot_be_decoded_is_an_error_though_its_template_is_known() -> None:
    by = Admission(FRAMEWORKS, Extenders())
    admit(by, BASE)
    body = msgspec.msgpack.decode(encode_msgpack(BASE.uid("other").build()))
    body["metadata"]["annotations"] = 5
    with pytest.raises(msgspec.DecodeError):
        by.admit(QueuedPod(msgspec.Raw(encode_msgpack(body)), 1, 0.0, 0.0), 0.0)


def test_a_pod_does_not_keep_the_message_that_it_came_in() -> None:
    message = encode_msgpack([queued_pod(BASE.build())])
    (queued,) = msgspec.msgpack.decode(message, type=list[QueuedPod])
    references = sys.getrefcount(message)
    info, _ = Admission(FRAMEWORKS, Extenders()).admit(queued, 0.0)
    del queued
    assert info.pod == BASE.build() and sys.getrefcount(message) < references


@pytest.mark.parametrize("priority", ["high", 1 << 63])
def test_a_spec_that_is_none_or_whose_numbers_fit_no_message_fails_the_pod(priority: object) -> None:
    body = encode_msgpack({"metadata": {"name": "p", "namespace": "d", "uid": "u"}, "spec": {"priority": priority}})
    info, failure = Admission(FRAMEWORKS, Extenders()).admit(QueuedPod(msgspec.Raw(body), 1, 0.0, 0.0), 0.0)
    assert info.uid == "u"
    assert failure is not None and "spec.priority" in failure.message


# Volume claims of one's own


def with_volume(name: str) -> PodBuilder:
    source = PersistentVolumeClaimSource(claim_name=f"claim-of-{name}")
    built = pod(name).uid(f"uid-of-{name}").container("c", image="web:1").request(cpu="1")
    return built.volume(Volume(name="data", persistent_volume_claim=source))


def admit_with(by: Admission, built: PodBuilder, content: bytes = b"content", gang: Gang | None = None) -> PodInfo:
    made = built.build()
    info, failure = by.admit(queued_pod(made, gang, volumes=QueuedVolumes(list(claim_names(made)), content)), 3.0)
    assert failure is None
    return info


def test_pods_whose_volume_claims_have_equal_content_share_a_template(decoded: list[str]) -> None:
    by = Admission(FRAMEWORKS, Extenders())
    p, q, other = admit_with(by, with_volume("p")), admit_with(by, with_volume("q")), with_volume("r")
    assert decoded == ["p"]
    assert q.template is p.template
    assert q.load == load_of(with_volume("q").build()), "its own claims count on its node"
    assert admit_with(by, other, b"other").class_id != p.class_id
    assert admit(by, other).class_id not in (p.class_id, admit(by, with_volume("p")).class_id)


def test_volumes_that_are_made_for_a_pod_may_be_like_those_of_another() -> None:
    by, made = Admission(FRAMEWORKS, Extenders()), Volume(name="scratch", ephemeral=EphemeralSource())
    infos = [admit_with(by, pod(name).uid(name).volume(made)) for name in "pq"]
    assert infos[1].class_id == infos[0].class_id
    assert infos[1].load.claims == ("q-scratch",)
    assert admit_with(by, pod("p").claim("p-scratch")).class_id != infos[0].class_id, "a named claim has zones"


def test_volume_claims_count_by_name_once_they_have_changed() -> None:
    by = Admission(FRAMEWORKS, Extenders())
    p, q = admit_with(by, with_volume("p")), admit_with(by, with_volume("q"))
    by.judge_by_name([p])
    assert p.volumes is None
    assert (p.class_id, p.template) == (admit(by, with_volume("p")).class_id, admit(by, with_volume("p")).template)
    assert p.class_id != q.class_id


class Foreign(ReadsNothing, FilterPlugin):
    name = "Foreign"

    def filter(self, state: ClassState, nodes: NodeView) -> None:
        pass


def test_members_of_gangs_and_pods_that_unknown_plugins_judge_are_judged_by_name() -> None:
    gang = Gang("default/g", 2)
    member = admit_with(Admission(FRAMEWORKS, Extenders()), with_volume("p"), gang=gang)
    frameworks = framework_with(Foreign, ExtensionPoint.FILTER)
    judged = admit_with(Admission(frameworks, Extenders()), with_volume("p"))
    assert member.volumes is judged.volumes is None


def test_of_a_pod_with_claims_and_a_group_only_these_go_along_to_the_binder() -> None:
    """So that many members of one gang are committed together."""
    by = Admission(FRAMEWORKS, Extenders())
    large = BASE.label(text="x" * 10_000).uid("u").resource_claim("gpu", "shared")
    member = large.in_group("train").build()
    info, _ = by.admit(queued_pod(member, claims=QueuedClaims([ClaimRef("default/shared", "c")], b"")), 3.0)
    assert info.sent is not None
    assert (info.sent.uid, info.sent.spec.resource_claims) == ("u", member.spec.resource_claims)
    assert info.sent.spec.scheduling_group == member.spec.scheduling_group
    assert 0 < info.size < 500
    alone, _ = by.admit(queued_pod(large.build(), claims=QueuedClaims([ClaimRef("default/shared", "c")], b"")), 3.0)
    assert (alone.sent, alone.size) == (None, 0)
    assert admit(by, BASE.in_group("train")).sent is None
