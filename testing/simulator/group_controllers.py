"""What controllers do about PodGroups of scheduling.k8s.io: their claims, and their protection while pods need them.

group with a template --claim controller--> claim that it owns, named in the group's status
group gone --claim controller--> no longer in reservedFor; its own claims deleted
new group --admission--> has the finalizer PROTECTION
group that is being deleted, all of its pods finished or gone --protection controller--> without the finalizer
"""

from functools import partial

from testing.simulator.claims import TEMPLATES, group_name_of, make_claim, release_claim
from testing.simulator.cluster import FINISHED, PROTECTION, SimulatedCluster
from testing.simulator.controllers import Controller
from testing.simulator.resources import POD_GROUPS, PODS, Object
from testing.simulator.store import ADDED, DELETED, Change, Item

_PHASE = PODS.field_index["status.phase"]
NAMES_GROUP = b'"schedulingGroup"'


class GroupControllers(Controller):
    def __init__(self, cluster: SimulatedCluster) -> None:
        listeners = {POD_GROUPS: self._on_group, PODS: self._on_pod, TEMPLATES: self._on_template}
        super().__init__(cluster, listeners)
        cluster.protects_groups = True

    def _on_group(self, change: Change) -> None:
        item = change.item
        if change.type == DELETED:
            self._make_due((item.uid,), partial(self._release, item))
        else:
            self._note(item.namespace, item.name)

    def _on_pod(self, change: Change) -> None:
        """A pod that is done may be the last one that a group is protected for."""
        item = change.item
        if NAMES_GROUP in item.raw and (change.type == DELETED or item.fields[_PHASE] in FINISHED):
            self._note(item.namespace, group_name_of(item.decode()))

    def _on_template(self, change: Change) -> None:
        if change.type == ADDED:
            for item in self._store.bucket(POD_GROUPS).items(change.item.namespace):
                self._note(item.namespace, item.name)

    def _note(self, namespace: str, name: str) -> None:
        self._make_due((namespace, name), partial(self._look_at, namespace, name))

    def _look_at(self, namespace: str, name: str) -> None:
        item = self._store.bucket(POD_GROUPS).get(namespace, name)
        if item is None:
            return
        group = item.decode()
        if group["metadata"].get("deletionTimestamp"):
            self._unprotect(item, group)
        else:
            self._make_claims(item, group)

    def _make_claims(self, item: Item, group: Object) -> None:
        status = group.setdefault("status", {})
        named: list[Object] = list(status.get("resourceClaimStatuses") or [])
        known = {each["name"] for each in named}
        for claim in group["spec"].get("resourceClaims") or ():
            template = claim.get("resourceClaimTemplateName")
            if template is None or claim["name"] in known:
                continue
            made = make_claim(self._cluster, item, claim["name"], template)
            if made is not None:
                named.append({"name": claim["name"], "resourceClaimName": made.name})
        if len(named) > len(known):
            status["resourceClaimStatuses"] = named
            self._store.put(POD_GROUPS, group)

    def _unprotect(self, item: Item, group: Object) -> None:
        finalizers: list[str] = group["metadata"].get("finalizers") or []
        if PROTECTION in finalizers and not self._has_pods(item.namespace, item.name):
            group["metadata"]["finalizers"] = [each for each in finalizers if each != PROTECTION]
            self._cluster.write(POD_GROUPS, group)

    def _has_pods(self, namespace: str, group: str) -> bool:
        """Whether a pod of the group may still run."""
        pods = self._store.bucket(PODS).items(namespace)
        unfinished = (item for item in pods if NAMES_GROUP in item.raw and item.fields[_PHASE] not in FINISHED)
        return any(group_name_of(item.decode()) == group for item in unfinished)

    def _release(self, item: Item) -> None:
        group = item.decode()
        names = [each.get("resourceClaimName") for each in group["spec"].get("resourceClaims") or ()]
        made = (group.get("status") or {}).get("resourceClaimStatuses") or ()
        names += [each.get("resourceClaimName") for each in made]
        for name in dict.fromkeys(filter(None, names)):
            release_claim(self._cluster, item.namespace, name, item.uid)
