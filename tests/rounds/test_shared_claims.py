"""Pods that share a claim, decided one after the other before the claim is bound."""

import pytest

from services.cycle.events import Decided
from shared.model.wellknown import HOSTNAME
from testing.builders import node, pod
from testing.inprocess.pipeline import Pipeline
from tests.plugins.volumes.storage import claim, storage_class, volume

SHARED = ("ReadWriteMany",)
NODES = 3


@pytest.mark.parametrize("shards", [1, 2, 3])
@pytest.mark.parametrize("round_size", [1, 256])
def test_no_volume_is_provisioned_if_the_first_pods_volume_is_out_of_reach(shards: int, round_size: int) -> None:
    """1. The first pod gets a volume that only its node reaches. 2. Nothing of that is carried out yet. 3. The second
    pod was offered nodes where a volume could be made for the claim, and refused there, again and again.
    """
    run = Pipeline(shards=shards, round_size=round_size)
    run.add_objects([storage_class(), claim(modes=SHARED)])
    run.add_objects(volume(f"v{i}", nodes={HOSTNAME: [f"n{i}"]}, modes=SHARED) for i in range(NODES))
    run.add_nodes(node(f"n{i}").capacity(cpu=4, memory="8Gi").label({HOSTNAME: f"n{i}"}).build() for i in range(NODES))
    run.settle()
    run.submit([pod(f"p{i}").request(cpu=1).claim("data").build() for i in range(4)])
    run.settle(most=3_000)
    places = [outcome.node for outcome in run.outcomes.values() if isinstance(outcome, Decided)]
    assert len(places) == 4
    assert len(set(places)) == 1
