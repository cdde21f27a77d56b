"""Which pods are judged alike although their volume claims have other names."""

from collections import Counter

import pytest

from shared.cluster.objects import ClusterObjects
from shared.messages.queue import QueuedVolumes
from shared.model.objects import ClusterObject, EphemeralSource, ObjectKind, Pod, Volume, object_from
from shared.plugins.volumes.own_claims import ClaimsOnNodes, content_of_pod, queued_volumes
from testing.builders import pod
from tests.plugins.volumes.storage import ZONE, attachment, claim, csi, storage_class, volume

GCE = {"pdName": "disk"}


def bound(name: str, **of_volume: object) -> list[ClusterObject]:
    given = {"csi": csi(name), "kept_for": name, **of_volume}
    return [claim(name, volume=f"v-{name}"), volume(f"v-{name}", **given)]  # type: ignore[arg-type]


def known(*objects: ClusterObject) -> ClusterObjects:
    found = ClusterObjects()
    for obj in (storage_class(), storage_class("now", mode="Immediate"), *objects):
        found.upsert(obj)
    return found


def content(name: str, *objects: ClusterObject) -> bytes | None:
    return content_of_pod(pod(name).claim(name).build(), known(*objects))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (bound("a"), bound("b")),
        (bound("a", nodes={ZONE: ["z"]}, labels={ZONE: "z"}), bound("b", nodes={ZONE: ["z"]}, labels={ZONE: "z"})),
        (bound("a", size="1Gi"), bound("b", size="2Gi")),
        (bound("a", labels={"x": "y"}), bound("b")),
        ([claim("a")], [claim("b")]),
    ],
)
def test_claims_that_restrict_nodes_alike_have_equal_content(
    one: list[ClusterObject], other: list[ClusterObject]
) -> None:
    assert content("a", *one, *other) == content("b", *one, *other) is not None


@pytest.mark.parametrize(
    "other",
    [
        bound("b", nodes={ZONE: ["z"]}),
        bound("b", labels={ZONE: "z"}),
        bound("b", csi=csi("b", "other.example.com")),
        bound("b", csi=None),
        [claim("b")],
    ],
)
def test_other_volumes_are_other_content(other: list[ClusterObject]) -> None:
    one, two = content("a", *bound("a"), *other), content("b", *bound("a"), *other)
    assert one is not None
    assert two is not None
    assert one != two


@pytest.mark.parametrize("other", [claim("b", size="1Gi"), claim("b", modes=["ReadOnlyMany"]), claim("b", "slow")])
def test_claims_that_want_other_volumes_are_other_content(other: ClusterObject) -> None:
    objects = claim("a"), other, storage_class("slow")
    assert content("a", *objects) != content("b", *objects) is not None


@pytest.mark.parametrize(
    "objects",
    [
        pytest.param([], id="no claim"),
        pytest.param([claim("a", volume="v-a")], id="no volume"),
        pytest.param([claim("a", volume="v-a"), volume("v-a", kept_for="b")], id="the volume of another claim"),
        pytest.param([*bound("b"), *bound("a", csi=csi("b"))], id="the disk of another volume"),
        pytest.param([*bound("a"), attachment("n", "v-a")], id="attached"),
        pytest.param(bound("a", csi=None, gcePersistentDisk=GCE), id="in-tree"),
        pytest.param([claim("a", deleted=True)], id="being deleted"),
        pytest.param([claim("a", phase="Lost")], id="lost"),
        pytest.param([claim("a", modes=["ReadWriteOncePod"])], id="for one pod"),
        pytest.param([claim("a", "now")], id="bound at once"),
        pytest.param([claim("a", "unknown")], id="no class"),
        pytest.param([claim("a", selected="n")], id="a node was selected"),
        pytest.param([claim("a", volume="v", bound=False)], id="about to be bound"),
        pytest.param([claim("a"), volume("v", kept_for="a")], id="a volume is kept for it"),
        pytest.param([claim("a", "gce"), storage_class("gce", "kubernetes.io/gce-pd")], id="made in-tree"),
    ],
)
def test_claims_whose_names_matter_have_no_content(objects: list[ClusterObject]) -> None:
    assert content("a", *objects) is None


def test_a_volume_that_an_earlier_claim_of_the_name_left_is_not_kept_for_the_new_one() -> None:
    left = volume("v", kept_for="a", uid="of the earlier one")
    assert content("a", claim("a"), left) == content("b", claim("b"), left) is not None


def test_the_order_and_number_of_claims_matters() -> None:
    objects = known(*bound("a"), *bound("b"), claim("c"))
    two, twice = pod("p").claim("a").claim("b"), pod("p").claim("a").claim("a")
    mixed = pod("p").claim("a").claim("c"), pod("p").claim("c").claim("a")
    found = [content_of_pod(each.build(), objects) for each in (pod("p").claim("a"), two, twice, *mixed)]
    assert None not in found
    assert len(set(found)) == len(found)


def test_a_volume_that_is_made_for_a_pod_must_be_its_own() -> None:
    made = pod("p").uid("u").volume(Volume(name="v", ephemeral=EphemeralSource())).build()
    assert content_of_pod(made, known(claim("p-v", owner="u"))) is not None
    assert content_of_pod(made, known(claim("p-v", owner="another"))) is None


# What the queue says


def told(wants: Pod, pending: Counter[str], on_nodes: ClaimsOnNodes | None = None) -> QueuedVolumes | None:
    return queued_volumes(wants, known(*bound("a")), pending, on_nodes or ClaimsOnNodes())


def test_claims_that_another_pod_uses_count_by_name() -> None:
    wants, alone = pod("p").claim("a").build(), Counter({"default/a": 1})
    own = told(wants, alone)
    assert own is not None
    assert own.claims == ["a"]
    assert told(wants, Counter({"default/a": 2})) is None
    users = ClaimsOnNodes()
    users.put("q", ["default/a"])
    assert told(wants, alone, users) is None
    users.put("q", ["default/b"])
    users.put("r", ["default/a"])
    users.put("r", ())
    assert told(wants, alone, users) == own


def test_nothing_is_said_of_pods_without_claims_and_of_nominated_ones() -> None:
    assert told(pod("p").build(), Counter()) is None
    assert told(pod("p").claim("a").nominated("n").build(), Counter({"default/a": 1})) is None


def test_the_indexes_of_handles_and_attachments_follow_the_objects() -> None:
    objects = known(*bound("a"), attachment("n", "v-a"))
    assert list(objects.attachments_of("v-a")) == ["n-v-a"]
    objects.remove(ObjectKind.VOLUME_ATTACHMENT, "n-v-a")
    objects.remove(ObjectKind.PERSISTENT_VOLUME, "v-a")
    objects.validate()
    assert not objects.attachments_of("v-a")
    without_name = {"metadata": {"name": "x"}, "spec": {"attacher": "d", "nodeName": "n", "source": {}}}
    objects.upsert(object_from(ObjectKind.VOLUME_ATTACHMENT, without_name))
    objects.validate()
