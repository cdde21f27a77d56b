"""Pods on nodes that differ in one thing each, which may count there."""

import msgspec

from services.watcher.alike_pods import AlikePodReader
from shared.messages.watch import AlikePods, PodChange
from shared.model.objects import (
    GROUP_LABEL,
    ContainerStatus,
    EphemeralSource,
    GcePersistentDisk,
    Pod,
    PodCondition,
    PodStatus,
    ResourceRequirements,
    Volume,
    encode_json,
    encode_msgpack,
)
from testing.builders import PodBuilder, expr, pod, resource_list, selector

LONG = "n" * 200


def _granted(cpu: int) -> PodStatus:
    resources = ResourceRequirements(requests=resource_list(cpu=cpu))
    return PodStatus(container_statuses=[ContainerStatus(name="", resources=resources)])


def _pending_resize(reason: str) -> PodStatus:
    condition = PodCondition(type="PodResizePending", status="True", reason=reason)
    return PodStatus(conditions=[condition], container_statuses=_granted(3).container_statuses)


def _victim() -> PodStatus:
    condition = PodCondition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler")
    return PodStatus(conditions=[condition])


def variants(name: str, node: str) -> list[Pod]:
    """Each under this name on this node."""
    plain = pod(name).on(node).label(app="web").request(cpu=1, memory="1Gi")
    large = plain.init_container(cpu=2).overhead(cpu="10m").pod_request(cpu=4).node_selector(disk="ssd").tolerate("t")
    large = large.require_pods("zone", selector(app="db")).spread_soft("zone", selector(app="web")).gate("g")
    large = large.resource_claim("c").group("g").priority(7).never_preempting().host_port(80)
    built: list[PodBuilder] = [
        plain,
        pod(name, "shop").on(node).label(app="web").request(cpu=1, memory="1Gi"),
        plain.label(app="db"),
        plain.label({"volumes": "nodeName"}),
        plain.request(cpu=2),
        plain.request({"example.com/volumes": 1}),
        plain.container("second").request(cpu=1),
        plain.host_port(80),
        plain.host_port(80, ip="10.0.0.1"),
        plain.priority(7),
        plain.node_selector(nodeName=node),
        plain.require_node(expr("nodeName", "In", node)),
        plain.require_no_pods("zone", selector(app="web")),
        plain.require_no_pods("host", selector(app="web")),
        plain.prefer_pods(3, "zone", selector(app="web")),
        plain.group("gang"),
        plain.label({GROUP_LABEL: "gang"}),
        plain.terminating(),
        plain.terminating().with_status(_victim()),
        plain.with_status(_granted(2)),
        plain.with_status(_granted(3)),
        plain.with_status(_pending_resize("Infeasible")),
        plain.with_status(_pending_resize("Deferred")),
        plain.volume(Volume(name="disk", gce_persistent_disk=GcePersistentDisk(pd_name="one"))),
        plain.volume(Volume(name="disk", gce_persistent_disk=GcePersistentDisk(pd_name="two"))),
        plain.claim("data"),
        plain.claim(f"data-{name}"),
        plain.volume(Volume(name="scratch", ephemeral=EphemeralSource())),
        large,
        large.claim("data"),
    ]
    return [each.build() for each in built]


def change_of(of: Pod) -> PodChange:
    body = msgspec.Raw(encode_msgpack(of))
    return PodChange(of.uid, of.namespace, of.name, of.spec.scheduler_name, of.spec.node_name, body=body)


def alike_of(of: Pod, reader: AlikePodReader | None = None) -> AlikePods | None:
    """As the watcher publishes it for followers that read AlikePods; None if it is to be read in full."""
    return (reader or AlikePodReader()).read(msgspec.Raw(encode_json(of)))


def alike(*pods: Pod) -> AlikePods:
    """Pods that share a body."""
    read = AlikePodReader()
    each = [found for pod in pods if (found := alike_of(pod, read)) is not None]
    assert len(each) == len(pods) and len({id(one.body) for one in each}) == 1
    return AlikePods(each[0].namespace, each[0].body, [one.pods[0] for one in each])
