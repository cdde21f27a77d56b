"""A cluster in which every invented name contains `acme`, and decisions of all sorts about its pods."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import msgspec

from shared.cluster.nodetable import stable_hash
from shared.config.reading import load_config
from shared.framework.loading import load_frameworks
from shared.messages.evaluation import Ties
from shared.messages.recording import DeciderShown
from shared.model.objects import ClusterObject, Node, ObjectKind, Pod, object_from
from testing.builders import NodeBuilder, PodBuilder, expr, node, pod, selector, term
from testing.inprocess.pipeline import Pipeline
from tests.replay.worlds import Overheard
from tools.recording.file import Entry

MARK = "acme"
ZONE, HOSTNAME, RACK = "topology.kubernetes.io/zone", "kubernetes.io/hostname", "acme.example/rack"
CORES, LICENCE, TAINT = "acme.example/cores", "acme.example/licence", "acme.example/reserved-for"
DRIVER, WEB = "csi.acme.example", "registry.acme.example:5000/acme/web"
SCORES = ("NodeResourcesFit", "ImageLocality", "PodTopologySpread")
ADDED = {"nodeSelectorTerms": [{"matchExpressions": [{"key": CORES, "operator": "Gt", "values": ["7"]}]}]}
SPREAD = {"maxSkew": 1, "topologyKey": RACK, "whenUnsatisfiable": "ScheduleAnyway"}
WEIGHTS = [{"name": "cpu", "weight": 1}, {"name": LICENCE, "weight": 3}]
ARGS: dict[str, Any] = {
    "NodeAffinity": {"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": ADDED}},
    "PodTopologySpread": {"defaultingType": "List", "defaultConstraints": [SPREAD]},
    "NodeResourcesFit": {"scoringStrategy": {"type": "MostAllocated", "resources": WEIGHTS}},
}
OTHER = {
    "schedulerName": "acme-scheduler",
    "plugins": {"score": {"disabled": [{"name": "*"}], "enabled": [{"name": name} for name in SCORES]}},
    "pluginConfig": [{"name": name, "args": args} for name, args in ARGS.items()],
}
CONFIG = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "leaderElection": {"resourceName": "acme-scheduler"},
    "profiles": [OTHER, {"schedulerName": "default-scheduler"}],
}
FRAMEWORKS = load_frameworks(load_config(CONFIG))


def nodes() -> list[Node]:
    return [_node(i).build() for i in range(12)]


def _node(i: int) -> NodeBuilder:
    name = f"ip-10-acme-{i:02}.acme.example"
    labels = {
        HOSTNAME: name,
        ZONE: ("acme-west", "7", "acme-east")[i % 3],
        RACK: f"acme-r{i % 5}",
        CORES: str(6 + i % 3),
    }
    made = node(name).capacity({"cpu": 4, "memory": "16Gi", "pods": 30, LICENCE: i % 4}).label(labels)
    made = made.image(f"{WEB}-{i % 2}:v1", 300_000_000)
    return made.taint(TAINT, "acme-billing") if i % 6 == 5 else made


def objects() -> list[ClusterObject]:
    """Local volumes in some racks, claims on them and on a provisioner, and what a provisioner's driver can attach."""
    racks = {"key": RACK, "operator": "In", "values": ["acme-r1", "acme-r3"]}
    zones = {"matchLabelExpressions": [{"key": ZONE, "values": ["acme-east"]}]}
    late = {"volumeBindingMode": "WaitForFirstConsumer"}
    once = {"accessModes": ["ReadWriteOnce"]}
    made: list[tuple[ObjectKind, str, dict[str, Any]]] = [
        (ObjectKind.STORAGE_CLASS, "acme-local", {**late, "provisioner": "kubernetes.io/no-provisioner"}),
        (ObjectKind.STORAGE_CLASS, "acme-fast", {**late, "provisioner": DRIVER, "allowedTopologies": [zones]}),
    ]
    for i, of in enumerate(("acme-local", "acme-local", "acme-fast")):
        affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [racks]}]}}}
        volume = {**once, **affinity, "capacity": {"storage": f"{5 + i}Gi"}, "storageClassName": "acme-local"}
        claim = {**once, "storageClassName": of, "resources": {"requests": {"storage": "5Gi"}}}
        made.append(
            (ObjectKind.PERSISTENT_VOLUME, f"acme-disk-{i}", {"spec": volume, "status": {"phase": "Available"}})
        )
        made.append(
            (ObjectKind.PERSISTENT_VOLUME_CLAIM, f"acme-data-{i}", {"spec": claim, "status": {"phase": "Pending"}})
        )
    for each in nodes():
        driver = {"name": DRIVER, "nodeID": each.name, "allocatable": {"count": 1}}
        made.append((ObjectKind.CSI_NODE, each.name, {"spec": {"drivers": [driver]}}))
    made.append((ObjectKind.NAMESPACE, "acme-prod", {}))
    return [
        object_from(kind, {"metadata": {"name": name, "namespace": "acme-prod", "uid": f"acme-{name}"}, **rest})
        for kind, name, rest in made
    ]


def pods(dice: random.Random) -> list[Pod]:
    """Decisions of all sorts, some of which name what the pod asks for."""
    web, database = {"acme.example/app": "acme-web"}, {"acme.example/app": "acme-db"}
    not_reserved = expr(TAINT, "DoesNotExist"), expr(CORES, "Lt", "8")
    kinds = {
        "web": _pod().label(web).request(cpu="300m").spread_hard(ZONE, selector(web)),
        "alone": _pod().label(database).request(cpu="200m").require_no_pods(HOSTNAME, selector(database)),
        "near": _pod().request(cpu="100m").require_pods(RACK, selector(web)),
        "images": _pod().container("acme", f"{WEB}-1:v1").request(cpu="100m"),
        "licensed": _pod().request({LICENCE: 2}),
        "tolerant": _pod().tolerate(TAINT, "acme-billing").require_node(term(*not_reserved)).request(cpu="100m"),
        "racks": _pod().require_node(expr(RACK, "NotIn", "acme-r0", "acme-r1", "acme-r2")).request(cpu="150m"),
        "other": _pod("acme-scheduler").request(cpu="250m"),
        "huge": _pod().request({LICENCE: 9}),
        "lost": _pod().claim("acme-nowhere"),
    }
    found = [_named(made, f"acme-{kind}-{i}") for kind, made in kinds.items() for i in range(4)]
    dice.shuffle(found)
    claiming = [_named(_pod().request(cpu="100m").claim(f"acme-data-{i}"), f"acme-stateful-{i}") for i in range(3)]
    urgent = [_named(_pod().request(cpu=3).priority(100), f"acme-urgent-{i}") for i in range(3)]
    return found[:20] + claiming + found[20:] + urgent


def _pod(scheduler: str = "default-scheduler") -> PodBuilder:
    return pod("acme", "acme-prod").scheduler(scheduler)


def _named(made: PodBuilder, name: str) -> Pod:
    """With a uid, as the API server gives."""
    uid = f"acme-{stable_hash(name):016x}"
    return replace(made, metadata=msgspec.structs.replace(made.metadata, name=name, uid=uid)).build()


@cache
def recorded(seed: int, shards: int, round_size: int) -> Sequence[Entry]:
    overheard = Overheard()
    run = Pipeline(FRAMEWORKS, shards=shards, round_size=round_size, fate=overheard, ties=Ties(seed=seed))
    run.add_objects(objects())
    run.add_nodes(nodes())
    filler = _pod().request(cpu=2).priority(-5)
    run.add_pods([_named(filler.on(each.name), f"acme-filler-{each.name}") for each in nodes()])
    run.settle()
    overheard.begin(run)
    submitted = pods(random.Random(seed))
    for at in range(0, len(submitted), 6):
        run.submit(submitted[at : at + 6])
        run.settle()
    config = json.dumps(CONFIG)
    return [
        msgspec.structs.replace(each, config=config, cycle="acme-cycle") if isinstance(each, DeciderShown) else each
        for each in overheard.entries
    ]
