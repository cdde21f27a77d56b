"""Volumes and devices."""

from collections.abc import Iterator, Sequence
from functools import partial

from shared.explain.changes.change import Change, leaving, with_spec
from shared.messages.explaining import Cause, NodeEdit, NodeFindings, Supposed
from shared.model.pod import Pod

_REACH = frozenset({"VolumeBinding", "VolumeZone"})


def volumes(plugin: str, own: Sequence[Cause], findings: NodeFindings, pod: Pod) -> Iterator[Change]:
    for cause in own:
        yield from leaving(plugin, cause)
        alone = [node for b in findings.blocked if _REACH.issuperset(b.plugins) for node in b.examples]
        for node in (alone or cause.examples)[:1] if cause.values else ():
            labels = ", ".join(f"{key}={value}" for key, value in cause.values.items())
            yield Change(
                f"there were a node like {node} with {labels}, where its claim {cause.name} is reached",
                "add-node",
                _REACH,
                supposed=Supposed((NodeEdit(node, copy=True, labels=dict(cause.values)),)),
                detail={"like": node, "labels": dict(cause.values)},
            )
    yield from without_volumes(plugin, pod)


def without_volumes(plugin: str, pod: Pod) -> Iterator[Change]:
    """Apart from one of its claims: whether only that is in the way."""
    for volume in pod.spec.volumes:
        source = volume.persistent_volume_claim
        name = source.claim_name if source is not None else f"{pod.name}-{volume.name}" if volume.ephemeral else ""
        if name:
            yield Change(
                f"its claim {name} were bound to, or could get, a volume that such a node reaches",
                "volume",
                frozenset({plugin}),
                partial(_without_volume, name=volume.name),
                detail={"claim": name},
                certain=False,
            )
    if sum(1 for volume in pod.spec.volumes) > 1:
        yield Change(
            "its volumes were reached, and free, on such a node",
            "volume",
            frozenset({plugin}),
            lambda given: with_spec(given, volumes=[]),
            certain=False,
        )


def without_devices(plugin: str, pod: Pod) -> Iterator[Change]:
    for claim in pod.spec.resource_claims:
        name = claim.resource_claim_name or claim.name
        yield Change(
            f"such a node had free devices for its resource claim {name}",
            "resource-claim",
            frozenset({plugin}),
            partial(_without_resource_claim, name=claim.name),
            detail={"claim": name},
            certain=False,
        )


def devices(plugin: str, own: Sequence[Cause], findings: NodeFindings, pod: Pod) -> Iterator[Change]:
    yield from without_devices(plugin, pod)


def _without_volume(pod: Pod, name: str) -> Pod:
    return with_spec(pod, volumes=[volume for volume in pod.spec.volumes if volume.name != name])


def _without_resource_claim(pod: Pod, name: str) -> Pod:
    return with_spec(pod, resource_claims=[claim for claim in pod.spec.resource_claims if claim.name != name])
