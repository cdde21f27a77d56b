"""Claims and slices of all versions of the API."""

from typing import Any

from shared.model.codec import convert, encode_json
from shared.model.devices import ResourceClaim, ResourceSlice
from shared.model.devices_beta import claim_from_v1beta1, slice_from_v1beta1

METADATA = {"name": "x"}


def claim(*requests: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": METADATA, "spec": {"devices": {"requests": list(requests), "constraints": []}}}


def test_a_claim_of_v1beta1_says_the_same_as_one_of_v1() -> None:
    asked = {"deviceClassName": "gpu", "count": 2, "adminAccess": True}
    listed = {"name": "b", "firstAvailable": [{"name": "s", "deviceClassName": "gpu"}]}
    old, new = claim({"name": "a", **asked}, listed), claim({"name": "a", "exactly": asked}, listed)
    assert convert(ResourceClaim, claim_from_v1beta1(old)) == convert(ResourceClaim, new)
    assert claim_from_v1beta1(new)["spec"] == new["spec"]


def test_a_slice_of_v1beta1_says_the_same_as_one_of_v1() -> None:
    fields = {"attributes": {"model": {"string": "a"}}, "capacity": {"memory": {"value": "1Gi"}}}

    def made(device: dict[str, Any]) -> dict[str, Any]:
        return {"metadata": METADATA, "spec": {"driver": "d", "devices": [device]}}

    old, new = made({"name": "g", "basic": fields}), made({"name": "g", **fields})
    assert convert(ResourceSlice, slice_from_v1beta1(old)) == convert(ResourceSlice, new)


def test_quantities_stay_as_they_are_written() -> None:
    capacity = {"a": {"value": "1024Mi"}, "b": {"value": 3}, "c": {"value": "1.5"}}
    spec = {"driver": "d", "devices": [{"name": "g", "capacity": capacity}]}
    made = convert(ResourceSlice, {"metadata": METADATA, "spec": spec})
    values = [each.value for each in made.spec.devices[0].capacity.values()]
    assert values == ["1024Mi", "3", "1.5"]
    assert [each.amount.milli for each in values] == [2**30 * 1000, 3000, 1500]
    assert b'"value":"1024Mi"' in encode_json(made)
