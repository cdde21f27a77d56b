"""The snapshot checks and names claims for extended resources."""

from typing import Any

import msgspec
import pytest

from services.snapshot.events import (
    ObjectGone,
    ObjectSeen,
)
from services.snapshot.state.object_overlay import special_claim_name
from shared.cluster.devices import DeviceDecision, SpecialClaim
from shared.devices.extended import RequestMapping
from shared.model.codec import convert
from shared.model.devices import AllocationResult, DeviceRequest, ResourceClaim
from shared.model.objects import ObjectKind, object_from
from testing.builders import pod
from tests.rounds.support import refusals
from tests.snapshot.device_support import (
    CLAIM,
    P,
    Q,
    a_claim,
    a_log,
    allocation,
    decided,
    faults,
    gives,
    known,
)

FOREIGN = "request r asks for other devices than those of class gpu"


def test_the_claim_for_extended_resources_counts_before_it_exists() -> None:
    log = a_log(a_claim("q-r"))
    mapping = RequestMapping("c", "example.com/gpu", "r")
    made = a_claim("x")
    assert isinstance(made, ResourceClaim)
    requests = made.spec.devices.requests
    wanted = pod("p").request({"example.com/gpu": 1}).build()
    special = DeviceDecision(special=SpecialClaim(requests, [mapping], allocation("g0")))
    assert refusals(decided(log, 1, (wanted, special))) == {}
    devices = log.core.ledger["default/p"].assignment.devices
    assert devices is not None
    assert devices.special is not None
    name = devices.special.name
    assert name == special_claim_name("p", "default/p", log.attempt(wanted))
    assert name.startswith("p-extended-resources-")
    expected = known(log)[f"default/{name}"]
    assert (expected.is_special, expected.promised, expected.owner_uid) == (True, True, "default/p")
    (why,) = (reason for reason, _ in refusals(decided(log, 2, (Q, gives("q-r", "g0")))).values())
    assert why == "device d/n/g0 is in use"
    log.handle(ObjectSeen(expected_of_server(expected)))
    log.handle(ObjectGone(CLAIM, expected.key))
    assert expected.key not in known(log)


def expected_of_server(claim: ResourceClaim) -> ResourceClaim:
    """As it is shown between its creation and its allocation."""
    metadata = msgspec.structs.replace(claim.metadata, uid="made")
    return ResourceClaim(metadata=metadata, spec=claim.spec)


@pytest.mark.parametrize(
    ("requests", "mapped", "why"),
    [
        (
            [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": 2}}],
            ["r"],
            "2 devices serve 1 of example.com/gpu",
        ),
        ([{"name": "r", "exactly": {"deviceClassName": "other", "count": 1}}], ["r"], FOREIGN),
        ([{"name": "r", "exactly": {"deviceClassName": "gpu", "count": 1, "adminAccess": True}}], ["r"], FOREIGN),
        (
            [{"name": name, "exactly": {"deviceClassName": "gpu", "count": 1}} for name in "rs"],
            ["r"],
            "each request must serve one resource",
        ),
        (
            [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": 1}}],
            ["s"],
            "request s cannot serve example.com/gpu",
        ),
    ],
)
def test_the_claim_for_extended_resources_asks_for_what_the_pod_requests(
    requests: list[Any], mapped: list[str], why: str
) -> None:
    log = a_log()
    wanted = pod("p").request({"example.com/gpu": 1}).build()
    made = convert(list[DeviceRequest], requests)
    granted = allocation(*(f"g{number}" for number in range(sum(each.exactly.count for each in made if each.exactly))))
    results = [
        msgspec.structs.replace(each, request=made[min(number, len(made) - 1)].name)
        for number, each in enumerate(granted.devices.results)
    ]
    admin = bool(made[0].exactly and made[0].exactly.admin_access)
    granted.devices.results[:] = [msgspec.structs.replace(each, admin_access=admin) for each in results]
    mappings = [RequestMapping("c", "example.com/gpu", name) for name in mapped]
    other = object_from(ObjectKind.DEVICE_CLASS, {"metadata": {"name": "other"}, "spec": {}})
    log.handle(ObjectSeen(other))
    effects = decided(log, 1, (wanted, DeviceDecision(special=SpecialClaim(made, mappings, granted))))
    assert refusals(effects) == {"default/p": (why, False)}
    assert faults(effects) == ["devices"]


def test_no_claim_is_made_for_resources_of_a_device_plugin() -> None:
    log = a_log(a_claim("p-r"))
    nothing = SpecialClaim([], [], AllocationResult())
    decided(log, 1, (P, DeviceDecision(gives("p-r", "g0").claims, nothing)))
    devices = log.core.ledger["default/p"].assignment.devices
    assert devices is not None
    assert (len(devices.claims), devices.special) == (1, None)
    assert list(known(log)) == ["default/p-r"]


def test_the_name_of_a_special_claim_is_not_one_that_exists() -> None:
    log = a_log()
    wanted = pod("p").request({"example.com/gpu": 1}).build()
    taken = special_claim_name("p", "default/p", log.core.seq + 1)
    log.handle(ObjectSeen(a_claim(special_claim_name("p", "default/p", log.core.seq + 2))))
    made = convert(list[DeviceRequest], [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": 1}}])
    mapping = RequestMapping("c", "example.com/gpu", "r")
    decided(log, 1, (wanted, DeviceDecision(special=SpecialClaim(made, [mapping], allocation("g0")))))
    devices = log.core.ledger["default/p"].assignment.devices
    assert devices is not None
    assert devices.special is not None
    name = devices.special.name
    assert name.startswith("p-extended-resources-")
    assert name not in (taken, special_claim_name("p", "default/p", log.attempt(wanted)))


def test_the_name_of_a_special_claim_fits_and_differs_between_attempts() -> None:
    long = special_claim_name("p" * 80, "u", 1)
    assert (len(long), long[:58]) == (63, "p" * 58)
    assert special_claim_name("p", "u", 1) == special_claim_name("p", "u", 1)
    assert special_claim_name("p", "u", 1) != special_claim_name("p", "u", 2)
