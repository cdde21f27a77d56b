"""Which node each pod is to have, as far as the queue knows: cycle says so, or the pod's own status."""

from collections.abc import Container

from msgspec.structs import replace

from shared.errors import InvariantBroken
from shared.model.objects import Pod


class Nominations:
    def __init__(self) -> None:
        self._nodes: dict[str, str] = {}
        """By uid. Empty: said to have none, whatever the status still says."""

    def node_of(self, uid: str) -> str:
        return self._nodes.get(uid, "")

    def say(self, uid: str, node: str) -> None:
        self._nodes[uid] = node

    def read(self, pod: Pod) -> None:
        """Nothing was said, so the status counts."""
        if pod.status.nominated_node_name:
            self._nodes[pod.uid] = pod.status.nominated_node_name
        else:
            self._nodes.pop(pod.uid, None)

    def update(self, before: Pod, now: Pod) -> None:
        """A change that has nothing to do with it leaves what was said."""
        silent = not before.status.nominated_node_name and not now.status.nominated_node_name
        if not (silent and now.uid in self._nodes):
            self.read(now)

    def end(self, uid: str) -> None:
        self._nodes.pop(uid, None)

    def applied(self, pod: Pod) -> Pod:
        """The pod, with the node in its status."""
        node = self._nodes.get(pod.uid, "")
        if node == pod.status.nominated_node_name:
            return pod
        return replace(pod, status=replace(pod.status, nominated_node_name=node))

    def shown_or_said(self, pod: Pod) -> Pod:
        """The pod, with the node in its status if there is none."""
        return pod if pod.status.nominated_node_name else self.applied(pod)

    def unshown(self, pod: Pod) -> str | None:
        """What was said, where the status does not show it."""
        said = self._nodes.get(pod.uid)
        return None if said == pod.status.nominated_node_name else said

    def by_node(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for uid, node in self._nodes.items():
            if node:
                found.setdefault(node, []).append(uid)
        return found

    def validate(self, known: Container[str]) -> None:
        if unknown := [uid for uid in self._nodes if uid not in known]:
            raise InvariantBroken(f"nominated, and not known: {unknown[:9]}")
