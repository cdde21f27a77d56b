"""VolumeBinding, slowly: one node at a time, all volumes looked through for each claim."""

from dataclasses import dataclass, field

from shared.cluster.objects import ClusterObjects
from shared.model.kinds import ObjectKind
from shared.model.objects import LabelSelector, Node, PersistentVolume, PersistentVolumeClaim, Pod
from shared.model.quantity import Quantity
from shared.model.selectors import label_selector_matches, node_selector_matches

REASONS = (
    "node(s) didn't match PersistentVolume's node affinity",
    "node(s) didn't find available persistent volumes to bind",
    "node(s) did not have enough free storage",
    "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
)


@dataclass
class Found:
    """What a node means for a pod: its faults, and the volumes that its claims get there."""

    faults: set[int] = field(default_factory=set)
    bindings: list[tuple[str, str]] = field(default_factory=list)
    provisions: list[str] = field(default_factory=list)

    @property
    def reasons(self) -> tuple[str, ...]:
        return tuple(reason for i, reason in enumerate(REASONS) if i in self.faults)


def find(pod: Pod, objects: ClusterObjects, node: Node) -> Found:
    """For a pod whose claims PreFilter has nothing against."""
    names = claim_names(pod)
    claims: list[PersistentVolumeClaim] = [objects.claims[f"{pod.namespace}/{name}"] for name in names]
    found = Found()
    for claim in claims:
        if claim.fully_bound:
            volume = objects.persistent_volumes.get(claim.spec.volume_name)
            if volume is None:
                found.faults.add(3)
                break
            if not reaches(node, volume):
                found.faults.add(0)
                break
    open_claims = [claim for claim in claims if not claim.fully_bound]
    if any(claim.selected_node not in (None, node.name) for claim in open_claims):
        found.faults.add(1)
        return found
    to_make = [claim for claim in open_claims if claim.selected_node is not None]
    taken: set[str] = set()
    unselected = [claim for claim in open_claims if claim.selected_node is None]
    for claim in sorted(unselected, key=size):
        chosen = choose(claim, objects, node, taken)
        if chosen is None:
            to_make.append(claim)
        else:
            taken.add(chosen.name)
            found.bindings.append((claim.key, chosen.name))
    found.provisions = [claim.key for claim in to_make]
    for claim in to_make:
        fault = why_not_made(claim, objects, node)
        if fault is not None:
            found.faults.add(fault)
            break
    return found


def claim_names(pod: Pod) -> list[str]:
    """In the order of the volumes, with the claims that are made for the pod."""
    names: list[str] = []
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            names.append(volume.persistent_volume_claim.claim_name)
        elif volume.ephemeral is not None:
            names.append(f"{pod.name}-{volume.name}")
    return names


def choose(
    claim: PersistentVolumeClaim, objects: ClusterObjects, node: Node, taken: set[str]
) -> PersistentVolume | None:
    best: PersistentVolume | None = None
    for _, volume in sorted(objects.persistent_volumes.items()):
        spec = volume.spec
        if volume.name in taken or volume.storage_class != claim.storage_class:
            continue
        if spec.claim_ref is not None and not volume.is_bound_to(claim):
            continue
        if spec.capacity.get("storage", 0) < size(claim) or volume.metadata.deletion_timestamp:
            continue
        if (spec.volume_mode or "Filesystem") != (claim.spec.volume_mode or "Filesystem"):
            continue
        if spec.claim_ref is not None:
            return volume if reaches(node, volume) else None
        if volume.status.phase != "Available" or not set(claim.spec.access_modes) <= set(spec.access_modes):
            continue
        if claim.spec.selector and not label_selector_matches(claim.spec.selector, volume.metadata.labels):
            continue
        if not reaches(node, volume):
            continue
        if best is None or spec.capacity["storage"] < best.spec.capacity["storage"]:
            best = volume
    return best


def why_not_made(claim: PersistentVolumeClaim, objects: ClusterObjects, node: Node) -> int | None:
    of_class = objects.storage_classes[claim.storage_class]
    if of_class.provisioner in ("", "kubernetes.io/no-provisioner"):
        return 1
    topologies = of_class.allowed_topologies
    if topologies and not any(
        term.match_label_expressions
        and all(node.metadata.labels.get(each.key) in each.values for each in term.match_label_expressions)
        for term in topologies
    ):
        return 1
    driver = objects.csi_drivers.get(of_class.provisioner)
    if driver is None or not driver.spec.storage_capacity or "storage" not in claim.spec.resources.requests:
        return None
    for capacity in objects.of(ObjectKind.CSI_STORAGE_CAPACITY).values():
        limit = capacity.maximum_volume_size or capacity.capacity
        if capacity.storage_class_name == of_class.name and limit is not None and limit >= size(claim):
            topology: LabelSelector | None = capacity.node_topology
            if label_selector_matches(topology, node.metadata.labels):
                return None
    return 2


def reaches(node: Node, volume: PersistentVolume) -> bool:
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return True
    return node_selector_matches(affinity.required, node.metadata.labels, "")


def size(claim: PersistentVolumeClaim) -> int:
    return claim.spec.resources.requests.get("storage", 0)


def storage_score(found: Found, objects: ClusterObjects, node: Node, shape: list[tuple[int, int]]) -> int:
    """The score of a node that admits the pod. `shape`: scores of 0 to 10 by the use in percent."""
    classes: dict[str, tuple[int, int]] = {}
    for key, name in found.bindings:
        claim, volume = objects.claims[key], objects.persistent_volumes[name]
        requested, there = classes.get(claim.storage_class, (0, 0))
        classes[claim.storage_class] = requested + _bytes(size(claim)), there + _bytes(volume.spec.capacity["storage"])
    for key in () if found.bindings else found.provisions:
        claim = objects.claims[key]
        driver = objects.csi_drivers.get(objects.storage_classes[claim.storage_class].provisioner)
        if driver is None or not driver.spec.storage_capacity or "storage" not in claim.spec.resources.requests:
            continue
        for _, capacity in sorted(objects.of(ObjectKind.CSI_STORAGE_CAPACITY).items()):
            limit = capacity.maximum_volume_size or capacity.capacity
            fits = capacity.storage_class_name == claim.storage_class and limit is not None and limit >= size(claim)
            if fits and label_selector_matches(capacity.node_topology, node.metadata.labels):
                requested, _ = classes.get(claim.storage_class, (0, 0))
                classes[claim.storage_class] = requested + _bytes(size(claim)), _bytes(capacity.capacity or 0)
                break
    scores = [
        _line(shape, 100 if there == 0 or requested > there else requested * 100 // there)
        for requested, there in classes.values()
    ]
    return (2 * sum(scores) + len(scores)) // (2 * len(scores)) if scores else 0


def _line(shape: list[tuple[int, int]], use: int) -> int:
    for i, (at, score) in enumerate(shape):
        if use <= at:
            if i == 0:
                return 10 * score
            before, low = shape[i - 1]
            return 10 * low + int(10 * (score - low) * (use - before) / (at - before))
    return 10 * shape[-1][1]


def _bytes(quantity: object) -> int:
    return quantity.value if isinstance(quantity, Quantity) else 0
