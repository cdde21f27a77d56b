"""Changes of a pod or of the cluster that might make the pod fit, by the plugin that keeps it out."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from shared.explain.changes.change import Change
from shared.explain.changes.nodes import cordons, selection, taints
from shared.explain.changes.pods import affinity, ports, spreading
from shared.explain.changes.resources import resources
from shared.explain.changes.volumes import devices, volumes
from shared.messages.explaining import Cause, NodeFindings
from shared.model.pod import Pod

Finder = Callable[[str, Sequence[Cause], NodeFindings, Pod], Iterator[Change]]
_BY_PLUGIN: Mapping[str, Finder] = {
    "NodeResourcesFit": resources,
    "TaintToleration": taints,
    "NodeUnschedulable": cordons,
    "NodeAffinity": selection,
    "NodePorts": ports,
    "PodTopologySpread": spreading,
    "InterPodAffinity": affinity,
    "VolumeBinding": volumes,
    "VolumeZone": volumes,
    "VolumeRestrictions": volumes,
    "NodeVolumeLimits": volumes,
    "DynamicResources": devices,
}


def changes(plugin: str, findings: NodeFindings, pod: Pod) -> Iterator[Change]:
    """What might help where this plugin rejects; the smaller changes first."""
    own = [cause for cause in findings.causes if cause.plugin == plugin]
    find = _BY_PLUGIN.get(plugin)
    if find is not None:
        yield from find(plugin, own, findings, pod)
