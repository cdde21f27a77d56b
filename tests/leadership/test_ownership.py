"""Which of two pipelines has the snapshot's Lease, judged by what is seen of it."""

from dataclasses import replace

import pytest

from shared.kube.election import FOREIGN_TIMEOUT, Ownership, OwnershipTracker, Record, describe_conflict

THEIRS = Record("snapshot-a", 7, "0", 15.0, network="nats-a", acquired="2026-11-22T15:00:00.000000Z")
PERIOD = 2.0


def renewed(count: int) -> Record:
    return replace(THEIRS, renewed=str(count))


@pytest.mark.parametrize(
    "record",
    [
        None,
        replace(THEIRS, holder=""),
        replace(THEIRS, network="nats-b"),
        replace(THEIRS, network=""),
    ],
    ids=["none", "given back", "ours", "of the last release"],
)
def test_no_other_pipeline_has_it(record: Record | None) -> None:
    assert OwnershipTracker().judge(record, "nats-b", 0.0) is Ownership.OURS


def test_who_sees_another_pipeline_renew_it_for_long_enough_is_the_second_one() -> None:
    ownership = OwnershipTracker()
    seen = [ownership.judge(renewed(i), "nats-b", i * PERIOD) for i in range(int(FOREIGN_TIMEOUT / PERIOD) + 1)]
    assert seen == [Ownership.FOREIGN] * int(FOREIGN_TIMEOUT / PERIOD) + [Ownership.REFUSED]


def test_a_lease_left_behind_by_another_pipeline_ends_no_leader() -> None:
    ownership = OwnershipTracker()
    for i in range(100):
        assert ownership.judge(renewed(min(i, 2)), "nats-b", i * PERIOD) is Ownership.FOREIGN


def test_a_leader_that_has_not_noticed_that_nats_was_replaced_ends_no_other() -> None:
    """It names the NATS before for some seconds, then none, then the present one."""
    ownership = OwnershipTracker()
    for i in range(3):
        assert ownership.judge(renewed(i), "nats-b", i * PERIOD) is Ownership.FOREIGN
    assert ownership.judge(replace(renewed(3), network=""), "nats-b", 3 * PERIOD) is Ownership.OURS
    assert ownership.judge(replace(renewed(4), network="nats-b"), "nats-b", 4 * PERIOD) is Ownership.OURS
    for i in range(3):
        assert ownership.judge(renewed(5 + i), "nats-b", (5 + i) * PERIOD) is Ownership.FOREIGN, "counted from now on"


def test_it_is_said_who_has_it_since_when_and_describe_conflict() -> None:
    assert describe_conflict("Lease kube-system/flotilla-snapshot", THEIRS) == (
        "Lease kube-system/flotilla-snapshot is held by snapshot-a since 2026-11-22T15:00:00.000000Z, which names"
        " another NATS than ours and keeps renewing it: another pipeline schedules this cluster. Stop that one and"
        " start this one again (if it has crashed, once its Lease has run out), or connect this one to the same NATS"
        " (FLOTILLA_NATS_URL)"
    )
