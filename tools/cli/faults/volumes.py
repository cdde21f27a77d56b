"""Sees every change of a claim and a volume when it is written: which claim got which volume, and that it keeps it."""

from typing import Any

from shared.model.wellknown import ZONE
from testing.simulator.cluster import Cluster
from testing.simulator.store import DELETED, Change
from tools.cli.faults.attendants import CLAIMS, VOLUMES
from tools.cli.faults.load import NAMESPACE, claim_of

MOST_KEPT = 100


class VolumeWitness:
    """`broken`: what must not be, the first of it. `bound`: claims that have a volume."""

    def __init__(self, cluster: Cluster) -> None:
        self.broken: list[str] = []
        self.bound: dict[str, str] = {}
        self._owner: dict[str, str] = {}
        self._reserved: dict[str, str] = {}
        self._zones: dict[str, str] = {}
        self._claims = cluster.store.bucket(CLAIMS)
        self._claims.listeners.append(self._on_claim)
        cluster.store.bucket(VOLUMES).listeners.append(self._on_volume)

    def misplaced(self, pod_number: int, zone: str) -> str:
        """What is wrong with the claim of a pod that was bound in this zone; empty if nothing."""
        claim = claim_of(pod_number)
        volume = self.bound.get(claim)
        if volume is None:
            return f"and its claim {claim} has no volume yet"
        there = self._zones.get(volume, "")
        return "" if there == zone else f"and its volume {volume} is in zone {there}, not in {zone}"

    def _on_claim(self, change: Change) -> None:
        if change.type == DELETED or change.item.namespace != NAMESPACE:
            return
        claim, volume = change.item.name, change.item.decode()["spec"].get("volumeName", "")
        before = self.bound.get(claim, "")
        if before and before != volume:
            self._keep(f"claim {claim} had volume {before} and has {volume or 'none'} now")
        if volume and not before:
            self.bound[claim] = volume
            other = self._owner.setdefault(volume, claim)
            if other != claim:
                self._keep(f"volume {volume} belongs to claim {other}, and to {claim} as well")

    def _on_volume(self, change: Change) -> None:
        if change.type == DELETED:
            return
        volume, spec = change.item.name, change.item.decode()["spec"]
        self._zones[volume] = _zone(spec)
        claim, before = spec.get("claimRef", {}).get("name", ""), self._reserved.get(volume, "")
        if before and claim and before != claim:
            self._keep(f"volume {volume} was reserved for claim {before}, and is for {claim} now")
        self._reserved[volume] = claim

    def _keep(self, what: str) -> None:
        if len(self.broken) < MOST_KEPT:
            self.broken.append(what)


def _zone(spec: dict[str, Any]) -> str:
    terms = spec.get("nodeAffinity", {}).get("required", {}).get("nodeSelectorTerms", [])
    found = (each["values"][0] for term in terms for each in term["matchExpressions"] if each["key"] == ZONE)
    return next(found, "")
