"""Claims of devices: made from templates, and given back by their users."""

from testing.simulator.cluster import SimulatedCluster
from testing.simulator.resources import RESOURCE_CLAIMS, Object, builtin
from testing.simulator.store import Item

TEMPLATES = builtin("resourceclaimtemplates", "resource.k8s.io")
FINALIZER = "resource.kubernetes.io/delete-protection"
POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"


def make_claim(cluster: SimulatedCluster, owner: Item, name: str, template: str) -> Item | None:
    """Make a claim for a pod or a group, which calls it `name`; None if there is no such template."""
    found = cluster.store.bucket(TEMPLATES).get(owner.namespace, template)
    if found is None:
        return None
    of, inner = owner.decode(), found.decode()["spec"]
    metadata: Object = dict(inner.get("metadata") or {})
    metadata["annotations"] = {**(metadata.get("annotations") or {}), POD_CLAIM_NAME: name}
    metadata["generateName"] = f"{owner.name}-{name}-"
    reference = {"apiVersion": of["apiVersion"], "kind": of["kind"], "name": owner.name, "uid": owner.uid}
    metadata["ownerReferences"] = [{**reference, "controller": True, "blockOwnerDeletion": True}]
    return cluster.create(RESOURCE_CLAIMS, owner.namespace, {"metadata": metadata, "spec": inner["spec"]})


def release_claim(cluster: SimulatedCluster, namespace: str, name: str, uid: str) -> None:
    """Take back the reservation for a pod or group that is done, and delete the claim if it was made for it.

    A claim without reservations gives its devices back.
    """
    item = cluster.store.bucket(RESOURCE_CLAIMS).get(namespace, name)
    if item is None:
        return
    claim = item.decode()
    status, metadata = claim.get("status") or {}, claim["metadata"]
    reserved: list[Object] = status.get("reservedFor") or []
    left = [each for each in reserved if each.get("uid") != uid]
    is_own = any(owner.get("uid") == uid for owner in metadata.get("ownerReferences") or ())
    if not left and (reserved or is_own):
        claim["status"] = {}
        metadata["finalizers"] = [each for each in metadata.get("finalizers") or () if each != FINALIZER]
        item = cluster.write(RESOURCE_CLAIMS, claim)
    elif len(left) < len(reserved):
        claim["status"] = {**status, "reservedFor": left}
        item = cluster.write(RESOURCE_CLAIMS, claim)
    if is_own and cluster.store.bucket(RESOURCE_CLAIMS).get(namespace, name) is not None:
        cluster.delete(RESOURCE_CLAIMS, item)


def group_name_of(pod: Object) -> str:
    """Empty if the pod is in no group."""
    return str((pod["spec"].get("schedulingGroup") or {}).get("podGroupName") or "")


def is_of_group(use: Object, group: Object) -> bool:
    """Whether the pod's claim is its group's: it has the same name there, and the same source."""
    source = ("name", "resourceClaimName", "resourceClaimTemplateName")
    of_group = group["spec"].get("resourceClaims") or ()
    return any(all(each.get(key) == use.get(key) for key in source) for each in of_group)


def claim_of_group(group: Object, name: str) -> str | None:
    """The claim that was made for the group under this name; None if none was."""
    made = (group.get("status") or {}).get("resourceClaimStatuses") or ()
    return next((each.get("resourceClaimName") for each in made if each["name"] == name), None)
