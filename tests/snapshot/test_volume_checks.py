"""The snapshot verifies what a decision does to volumes: whose claims they are, and what fits claim and node."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from services.snapshot.commit_checks import ProfileFilters
from services.snapshot.core import SnapshotCore
from services.snapshot.events import Effect, NodeSeen, ObjectSeen, PodSeen, WorkerFault
from shared.cluster.volumes import VolumeDecision
from shared.framework.loading import load_scheduler_config
from shared.messages.state import Assignment, Commit, Decision
from shared.model.load import load_of
from shared.model.objects import ClusterObject
from shared.plugins.volumes.own_claims import content_of_pod
from testing.builders import node, pod
from tests.plugins.volumes.storage import ZONE, claim, volume
from tests.rounds.support import refusals
from tests.samples import a_claim
from tests.snapshot.test_pending_pods import Owner, misstated, shown

POD = pod("p").request(cpu="1").claim("data").claim("more").build()
BOUND = VolumeDecision(bindings=[("default/data", "v")])


def an_owner(*objects: ClusterObject) -> Owner:
    owner = Owner(POD)
    owner.core.handle(NodeSeen(node("n").label({ZONE: "za"}).capacity(cpu=4, memory="8Gi").build()), 0.0)
    for each in objects:
        owner.core.handle(ObjectSeen(each), 0.0)
    return owner


def faults(effects: Sequence[Effect]) -> list[tuple[str, str]]:
    return [(each.worker, each.kind) for each in effects if isinstance(each, WorkerFault)]


def reason(effects: Sequence[Effect]) -> str:
    ((why, placed),) = refusals(effects).values()
    assert not placed
    return why


# Whose claims they are


@pytest.mark.parametrize(
    "forged",
    [
        VolumeDecision(bindings=[("default/anothers", "v")]),
        VolumeDecision(provisions=["default/anothers"]),
        VolumeDecision(bindings=[("default/data", "v")], provisions=["default/anothers"]),
        VolumeDecision(bindings=[("default/unknown", "unknown")]),
        VolumeDecision(bindings=[("elsewhere/data", "v")]),
    ],
)
def test_nothing_is_decided_about_a_claim_that_the_pod_does_not_use(forged: VolumeDecision) -> None:
    owner = an_owner(claim("data"), claim("anothers"), volume("v"))
    before = owner.core.state().objects
    effects = owner.commits(POD, volumes=forged)
    anothers = next(key for key in (*dict(forged.bindings), *forged.provisions) if key != "default/data")
    assert reason(effects) == f"the pod is not what was decided: it does not use claim {anothers}"
    assert misstated(effects) == [f"pod default/p: it does not use claim {anothers}"]
    assert faults(effects) == [("w", "volumes")], "workers propose volumes"
    assert (owner.core.ledger, owner.core.state().objects) == ({}, before)


# In one way


@pytest.mark.parametrize(
    ("forged", "what"),
    [
        (VolumeDecision(bindings=[("default/data", "v"), ("default/data", "w")]), "claim default/data"),
        (VolumeDecision(bindings=[("default/data", "v"), ("default/more", "v")]), "volume v"),
        (VolumeDecision(bindings=[("default/data", "v")], provisions=["default/data"]), "claim default/data"),
    ],
)
def test_one_decision_gives_a_claim_one_volume_and_a_volume_one_claim(forged: VolumeDecision, what: str) -> None:
    owner = an_owner(claim("data"), claim("more"), volume("v"), volume("w"))
    effects = owner.commits(POD, volumes=forged)
    assert reason(effects) == f"{what} is assigned differently to another member of this gang"
    assert faults(effects) == [("w", "volumes")]
    assert owner.core.ledger == {}


# What fits


@pytest.mark.parametrize(
    ("of_volume", "of_claim", "why"),
    [
        ({"of_class": "secret"}, {}, "volume v is of class 'secret'"),
        ({"size": "5Gi"}, {}, "volume v is too small"),
        ({"volumeMode": "Block"}, {}, "volume v is too small for claim default/data, of another mode"),
        ({"modes": ["ReadOnlyMany"]}, {}, "volume v is not available"),
        ({}, {"selector": {"matchLabels": {"disk": "ssd"}}}, "volume v is not available"),
        ({"phase": "Released"}, {}, "volume v is not available"),
        ({"nodes": {ZONE: ["zb"]}}, {}, "the node does not reach volume v"),
        ({"nodes": {ZONE: ["zb"]}, "kept_for": "data"}, {}, "the node does not reach volume v"),
    ],
)
def test_a_volume_that_does_not_fit_claim_and_node_is_refused(
    of_volume: dict[str, Any], of_claim: dict[str, Any], why: str
) -> None:
    owner = an_owner(claim("data", **of_claim), volume("v", **of_volume))
    effects = owner.commits(POD, volumes=BOUND)
    assert reason(effects).startswith(why)
    assert faults(effects) == [("w", "volumes")]
    assert owner.core.ledger == {}


@pytest.mark.parametrize(
    "of_volume",
    [
        {},
        {"size": "20Gi", "nodes": {ZONE: ["za", "zb"]}},
        {"kept_for": "data", "phase": "Bound", "modes": ["ReadOnlyMany"]},
    ],
)
def test_a_volume_that_fits_is_taken(of_volume: dict[str, Any]) -> None:
    """One that is kept for the claim is the administrator's choice, as for kube-scheduler."""
    owner = an_owner(claim("data"), volume("v", **of_volume))
    effects = owner.commits(POD, volumes=BOUND)
    assert (refusals(effects), faults(effects), misstated(effects)) == ({}, [], [])


def test_of_a_profile_without_the_filter_of_volumes_fit_is_not_verified() -> None:
    """Some plugin of its own chooses, by rules that the snapshot does not know."""
    given = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"multiPoint": {"disabled": [{"name": "VolumeBinding"}]}}}],
    }
    owner = Owner()
    owner.core = SnapshotCore(1, filters=ProfileFilters.of(load_scheduler_config(given)))
    owner.core.handle(NodeSeen(node("n").capacity(cpu=4, memory="8Gi").build()), 0.0)
    for each in (a_claim("data"), volume("v", "another")):
        owner.core.handle(ObjectSeen(each), 0.0)
    assert refusals(owner.commits(POD, volumes=BOUND)) == {}


# Judged by claims that are like its own


def own(owner: Owner) -> bytes:
    content = content_of_pod(OWN, owner.core.cluster.objects.current)
    assert content is not None
    return content


OWN = pod("p").request(cpu="1").claim("data").build()


def judged_by(owner: Owner, content: bytes) -> list[Effect]:
    owner.see(shown(OWN))
    decision = Decision(Assignment(OWN.uid, "default", "p", "default-scheduler", "n"), 0, owner.core.seq)
    decision = msgspec.structs.replace(decision, own_volumes=content)
    return owner.core.handle(Commit(1, 1, [load_of(OWN)], [decision]), 0.0)


def test_a_pod_whose_claims_are_as_its_class_was_judged_is_placed() -> None:
    owner = an_owner(claim("data", volume="v"), volume("v", kept_for="data"))
    assert refusals(judged_by(owner, own(owner))) == {}


def test_a_pod_whose_claims_have_changed_since_its_class_was_judged_is_refused() -> None:
    owner = an_owner(claim("data", volume="v"), volume("v", kept_for="data"))
    content = own(owner)
    owner.core.handle(ObjectSeen(volume("v", kept_for="data", nodes={ZONE: ["zb"]})), 0.0)
    effects = judged_by(owner, content)
    assert reason(effects) == "its volume claims have changed since the evaluation"
    assert faults(effects) == []


def test_a_pod_that_shares_a_claim_is_not_judged_by_those_of_others() -> None:
    owner = an_owner(claim("data", volume="v"), volume("v", kept_for="data"))
    owner.core.handle(PodSeen(pod("q").on("n").claim("data").build()), 0.0)
    effects = judged_by(owner, own(owner))
    assert reason(effects) == "another pod uses one of its volume claims"
    assert faults(effects) == []
