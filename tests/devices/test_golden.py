"""Golden cases about devices, decided by the functions of `shared/devices` alone."""

import gzip
from pathlib import Path

import msgspec
import pytest

from tests.devices.replay import differences

DATA = Path(__file__).parents[1] / "conformance" / "data"
GROUPS = {
    "dra": 40,
    "dra-allocate": 32,
    "dra-shared": 32,
    "dra-capacity": 32,
    "dra-extended": 32,
    "dra-conditions": 32,
    "dra-many": 32,
}


@pytest.mark.parametrize("group", GROUPS)
def test_devices_are_chosen_as_kube_scheduler_chooses_them(group: str) -> None:
    lines = gzip.decompress((DATA / f"{group}.jsonl.gz").read_bytes()).splitlines()
    assert len(lines) == GROUPS[group]
    assert [each for line in lines for each in differences(msgspec.json.decode(line))] == []
