"""Decided claims count as allocated, and their devices are held, until no binder can write them."""

from collections.abc import Sequence

import msgspec
import pytest

from services.snapshot.core import SnapshotCore
from services.snapshot.events import (
    ClaimsFenced,
    Effect,
    FenceClaims,
    LookedUp,
    NodeSeen,
    ObjectGone,
    ObjectSeen,
    PodDeleted,
    PodSeen,
    Tick,
)
from shared.messages.queue import ForgottenPod
from shared.messages.state import LedgerEntry
from shared.model.devices import ResourceClaim
from shared.store.schema import Persist
from testing.builders import node, pod
from testing.inprocess.pipeline import bound
from tests.rounds.support import SnapshotLog, commit, failed, reassigned, refusals
from tests.snapshot.device_support import (
    CLAIM,
    P,
    Q,
    a_claim,
    a_log,
    a_slice,
    allocation,
    decided,
    gives,
    known,
)


def test_a_decided_claim_counts_as_allocated_until_the_watch_shows_it() -> None:
    log = a_log(a_claim("p-r"))
    assert refusals(decided(log, 1, (P, gives("p-r", "g0")))) == {}
    promised = known(log)["default/p-r"]
    assert promised.promised
    assert promised.status.allocation == allocation("g0")
    shown = a_claim("p-r", status=msgspec.to_builtins({"allocation": {"devices": {"results": []}}}))
    log.handle(ObjectSeen(shown))
    assert known(log)["default/p-r"] == shown


def test_an_order_names_the_version_at_which_a_claim_may_be_allocated() -> None:
    log = a_log()
    log.handle(ObjectSeen(a_claim("p-r"), "7"))
    log.handle(ObjectSeen(a_claim("p-r"), "8"))
    decided(log, 1, (P, gives("p-r", "g0")))
    devices = log.core.ledger["default/p"].assignment.devices
    assert devices is not None
    assert [each.version for each in devices.claims] == ["8"]


def ends_attempt(log: SnapshotLog, how: str) -> list[Effect]:
    """The attempt at binding P ends, so that its node is free."""
    match how:
        case "failed":
            return log.handle(failed("default/p", log.attempt(P)))
        case "deleted":
            return log.handle(PodDeleted("default/p"))
        case "finished":
            return log.handle(
                PodSeen(msgspec.structs.replace(P, status=msgspec.structs.replace(P.status, phase="Failed")))
            )
        case "elsewhere":
            return log.handle(PodSeen(bound(P, "m")))
        case "looked up elsewhere":
            log.handle(failed("default/p", log.attempt(P), sure=False))
            return log.handle(LookedUp("default/p", log.attempt(P), "m"))
    raise AssertionError(how)


ENDS = ["failed", "deleted", "finished", "elsewhere", "looked up elsewhere"]


def in_use(log: SnapshotLog, number: int) -> bool:
    """Whether Q is refused P's device."""
    refused = refusals(decided(log, number, (Q, gives("q-r", "g0"))))
    assert refused in ({}, {"default/q": ("device d/n/g0 is in use", False)})
    return bool(refused)


@pytest.mark.parametrize("how", ENDS)
def test_devices_are_held_until_no_binder_can_write_them(how: str) -> None:
    log = a_log(a_claim("p-r"), a_claim("q-r"))
    log.handle(ObjectSeen(a_claim("p-r"), "5"))
    decided(log, 1, (P, gives("p-r", "g0")))
    effects = ends_attempt(log, how)
    assert "default/p" not in log.core.ledger
    (fence,) = (each for each in effects if isinstance(each, FenceClaims))
    held = fence.entry
    assert persisted(effects, held.uid), "another term must know of it"
    assert in_use(log, 2)
    log.handle(ClaimsFenced(held.uid, {"default/p-r": "9"}))
    assert in_use(log, 3), "the watch may show an allocation before this version"
    effects = log.handle(ObjectSeen(a_claim("p-r"), "9"))
    assert [each.reason for each in effects if isinstance(each, ForgottenPod)] == ["the pod is gone from its devices"]
    assert settled(effects) == [held.uid]
    assert known(log)["default/p-r"] == a_claim("p-r")
    assert not in_use(log, 4)
    assert log.core.stored_ledger == list(log.core.ledger.values())


def test_devices_are_free_at_once_if_the_watch_has_shown_the_fence() -> None:
    log = a_log(a_claim("p-r"), a_claim("q-r"))
    decided(log, 1, (P, gives("p-r", "g0")))
    held = only_fence(ends_attempt(log, "failed"))
    log.handle(ObjectSeen(a_claim("p-r"), "9"))
    assert in_use(log, 2)
    log.handle(ClaimsFenced(held.uid, {"default/p-r": "9"}))
    assert not in_use(log, 3)


def test_an_allocation_that_was_written_in_time_stays() -> None:
    log = a_log(a_claim("p-r"), a_claim("q-r"))
    decided(log, 1, (P, gives("p-r", "g0")))
    held = only_fence(ends_attempt(log, "failed"))
    log.handle(ClaimsFenced(held.uid, {"default/p-r": "9"}))
    allocated = a_claim("p-r", status={"allocation": msgspec.to_builtins(allocation("g0"))})
    effects = log.handle(ObjectSeen(allocated, "8"))
    assert settled(effects) == [held.uid]
    assert in_use(log, 2)
    assert known(log)["default/p-r"] == allocated


@pytest.mark.parametrize("seen", [True, False])
def test_a_claim_that_is_gone_frees_its_devices(seen: bool) -> None:
    log = a_log(a_claim("p-r"), a_claim("q-r"))
    decided(log, 1, (P, gives("p-r", "g0")))
    held = only_fence(ends_attempt(log, "deleted"))
    effects = log.handle(ObjectGone(CLAIM, "default/p-r") if seen else ClaimsFenced(held.uid, {"default/p-r": ""}))
    assert settled(effects) == [held.uid]
    assert not in_use(log, 2)


def test_devices_of_a_bound_pod_are_held_until_the_watch_shows_the_allocation() -> None:
    """The watch may show the pod before its claim, and the pod may be gone before that."""
    log = a_log(a_claim("p-r"), a_claim("q-r"))
    decided(log, 1, (P, gives("p-r", "g0")))
    effects = log.handle(PodSeen(bound(P, "n")))
    assert not [each for each in effects if isinstance(each, FenceClaims)], "the binder was faster than the watch"
    log.handle(PodDeleted("default/p"))
    assert in_use(log, 2)
    at = log.core.next_deadline()
    assert at is not None
    held = only_fence(log.handle(Tick(), at))
    assert in_use(log, 3)
    log.handle(ClaimsFenced(held.uid, {"default/p-r": "9"}))
    log.handle(ObjectSeen(a_claim("p-r"), "9"))
    assert not in_use(log, 4)


def test_another_attempt_does_not_free_what_an_earlier_one_holds() -> None:
    log = a_log(a_claim("p-r"), a_claim("q-r"))
    decided(log, 1, (P, gives("p-r", "g0")))
    held = only_fence(ends_attempt(log, "failed"))
    ((why, _),) = refusals(decided(log, 2, (P, gives("p-r", "g1")))).values()
    assert why == "resource claim default/p-r is allocated already"
    log.handle(ClaimsFenced(held.uid, {"default/p-r": "9"}))
    log.handle(ObjectSeen(a_claim("p-r"), "9"))
    assert refusals(decided(log, 3, (P, gives("p-r", "g1")))) == {}
    assert not in_use(log, 4)


def test_the_next_term_holds_and_fences_them() -> None:
    log = a_log(a_claim("p-r"), a_claim("q-r"))
    decided(log, 1, (P, gives("p-r", "g0")))
    ends_attempt(log, "deleted")
    later = SnapshotCore(1, log.core.stored_ledger)
    for event in (NodeSeen(node("n").capacity(cpu=8, memory="8Gi").build()), ObjectSeen(a_slice("g0", "g1"))):
        later.handle(event, 0.0)
    later.handle(ObjectSeen(a_claim("p-r"), "5"), 0.0)
    held = only_fence(later.begin(0.0))
    assert later.ledger == {}
    shown = {each.key: each for each in later.state().objects if isinstance(each, ResourceClaim)}
    assert shown["default/p-r"].promised
    later.handle(ClaimsFenced(held.uid, {"default/p-r": "5"}), 0.0)
    assert later.stored_ledger == []
    later.validate()


def only_fence(effects: Sequence[Effect]) -> LedgerEntry:
    (fence,) = (each for each in effects if isinstance(each, FenceClaims))
    return fence.entry


def persisted(effects: Sequence[Effect], uid: str) -> bool:
    """Whether the entry is stored, and before its pod's leaves the stored ledger."""
    writes = [each for each in effects if isinstance(each, Persist)]
    stored = next(at for at, each in enumerate(writes) if uid in {entry.uid for entry in each.ledger})
    return all("default/p" not in each.settled for each in writes[:stored])


def settled(effects: Sequence[Effect]) -> list[str]:
    return [uid for each in effects if isinstance(each, Persist) for uid in each.settled]


# Members of a gang that share a claim

PAIR = [pod(name).request(cpu="1").group("g").resource_claim("r", "k").build() for name in "ab"]


def a_shared_claim() -> SnapshotLog:
    """Two members are decided, with one device for the claim that both name."""
    log = a_log()
    log.handle(ObjectSeen(a_claim("k"), "7"))
    plain = commit(1, *((each, "n", log.core.seq) for each in PAIR))
    members = [
        msgspec.structs.replace(reassigned(each, devices=gives("k", "g0")), gang="g") for each in plain.decisions
    ]
    assert refusals(log.handle(msgspec.structs.replace(plain, decisions=members))) == {}
    return log


def test_a_shared_claim_is_held_until_the_attempts_of_all_members_are_over() -> None:
    log = a_shared_claim()
    versions = iter(("8", "9"))
    for each in PAIR:
        assert known(log)["default/k"].promised
        (fence,) = [e for e in log.handle(failed(each.uid, log.attempt(each))) if isinstance(e, FenceClaims)]
        version = next(versions)
        log.handle(ClaimsFenced(fence.entry.uid, {"default/k": version}))
        log.handle(ObjectSeen(a_claim("k"), version))
    assert known(log) == {"default/k": a_claim("k")}


def test_the_snapshot_knows_whether_a_pod_of_a_group_has_a_node() -> None:
    log = a_shared_claim()
    pods = log.core.cluster.pods
    assert (bool(pods.of_group("default/g")), bool(pods.of_group("default/h"))) == (True, False)
    log.handle(failed(PAIR[0].uid, log.attempt(PAIR[0])))
    assert pods.of_group("default/g")
    log.handle(PodSeen(bound(PAIR[1], "n")))
    assert pods.of_group("default/g")
    log.handle(PodDeleted(PAIR[1].uid))
    assert not pods.of_group("default/g")
