"""PreBind: what is written, what is waited for, and when it is given up. The API server is a dict here."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import msgspec
import pytest

from flotilla.plugin import BindingState
from flotilla.results import SKIP, SUCCESS, ApiAnswer, ApiCall, Pause, Status, error
from shared.cluster.volumes import VolumeDecision
from shared.config.args import VolumeBindingArgs
from shared.plugins.volumes.podvolumes import DECISION
from shared.plugins.volumes.volumebinding import VolumeBinding
from testing.builders import pod

CLAIM = "/api/v1/namespaces/default/persistentvolumeclaims/data"
VOLUME = "/api/v1/persistentvolumes/v"
POD = "/api/v1/namespaces/default/pods/p"
NODE = "/api/v1/nodes/n"
SELECTED, COMPLETED = "volume.kubernetes.io/selected-node", "pv.kubernetes.io/bind-completed"
PATIENCE = 600.0
STATIC = VolumeDecision([("default/data", "v")], uids={"default/data": "uid-data"})
DYNAMIC = VolumeDecision(provisions=["default/data"], uids={"default/data": "uid-data"})

Objects = dict[str, dict[str, Any]]


def objects() -> Objects:
    return {
        CLAIM: {
            "metadata": {"name": "data", "namespace": "default", "uid": "uid-data", "resourceVersion": "7"},
            "spec": {"accessModes": ["ReadWriteOnce"]},
        },
        VOLUME: {"metadata": {"name": "v", "resourceVersion": "3"}, "spec": {"other": [1, {"kept": True}]}},
        POD: {
            "metadata": {"name": "p", "namespace": "default", "uid": "uid-p"},
            "spec": {"containers": [{"name": "c"}]},
        },
        NODE: {"metadata": {"name": "n", "labels": {"zone": "a"}}},
    }


class Server:
    """Answers calls; `during` is done in each pause, as controllers would."""

    def __init__(self, during: Callable[[Objects], None] = lambda _: None) -> None:
        self.objects = objects()
        self.calls: list[ApiCall] = []
        self.pauses: list[Pause] = []
        self.refuses: dict[tuple[str, str], ApiAnswer] = {}
        self._during = during

    @property
    def written(self) -> list[str]:
        return [call.path for call in self.calls if call.method != "GET"]

    def run(self, decision: VolumeDecision | None, patience: float = PATIENCE) -> Status:
        plugin = VolumeBinding(VolumeBindingArgs(bind_timeout_seconds=int(patience)))
        state = BindingState(pod("p").uid("uid-p").build())
        if decision is not None:
            state[DECISION] = decision
        steps = plugin.pre_bind(state, "n")
        if isinstance(steps, Status):
            return steps
        elapsed = 0.0
        try:
            step = next(steps)
            while True:
                if isinstance(step, Pause):
                    self.pauses.append(step)
                    elapsed += step.seconds
                    self._during(self.objects)
                    answer = ApiAnswer(elapsed=elapsed)
                else:
                    elapsed += 0.01
                    answer = msgspec.structs.replace(self._answer(step), elapsed=elapsed)
                step = steps.send(answer)
        except StopIteration as end:
            status: Status = end.value
            return status

    def _answer(self, call: ApiCall) -> ApiAnswer:
        self.calls.append(call)
        refusal = self.refuses.get((call.method, call.path))
        if refusal is not None:
            return refusal
        found = self.objects.get(call.path)
        if found is None:
            return ApiAnswer(404, message=f'"{call.path.rpartition("/")[2]}" not found')
        if call.method == "PUT":
            assert call.body["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]
            found = self.objects[call.path] = deepcopy(call.body)
            found["metadata"]["resourceVersion"] += "0"
        return ApiAnswer(200, msgspec.json.encode(found))


def complete(found: Objects) -> None:
    """What the controller does once a claim has its volume."""
    claim = found[CLAIM]
    claim["spec"]["volumeName"] = "v"
    claim["metadata"].setdefault("annotations", {})[COMPLETED] = "yes"
    found[VOLUME]["spec"].setdefault("claimRef", {"namespace": "default", "name": "data", "uid": "uid-data"})


@pytest.mark.parametrize("decision", [None, VolumeDecision()])
def test_without_anything_to_bind_nothing_is_done(decision: VolumeDecision | None) -> None:
    server = Server()
    assert server.run(decision) == SKIP
    assert not server.calls
    assert not server.pauses


def test_a_volume_is_kept_for_its_claim_and_waited_for() -> None:
    server = Server(complete)
    assert server.run(STATIC) == SUCCESS
    assert server.written == [VOLUME]
    kept = server.objects[VOLUME]
    assert kept["spec"]["claimRef"] == {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": "default",
        "name": "data",
        "uid": "uid-data",
        "resourceVersion": "7",
    }
    assert kept["metadata"]["annotations"] == {"pv.kubernetes.io/bound-by-controller": "yes"}
    assert kept["spec"]["other"] == [1, {"kept": True}]
    assert len(server.pauses) == 1
    assert server.pauses[0].patience == PATIENCE


def test_a_volume_that_its_owner_has_kept_for_the_claim_is_not_marked_as_ours() -> None:
    server = Server(complete)
    server.objects[VOLUME]["spec"]["claimRef"] = {"namespace": "default", "name": "data"}
    assert server.run(STATIC) == SUCCESS
    assert server.objects[VOLUME]["spec"]["claimRef"]["uid"] == "uid-data"
    assert "annotations" not in server.objects[VOLUME]["metadata"]


def test_a_claim_is_told_its_node_and_waited_for() -> None:
    server = Server(complete)
    assert server.run(DYNAMIC) == SUCCESS
    assert server.written == [CLAIM]
    assert server.objects[CLAIM]["metadata"]["annotations"][SELECTED] == "n"


@pytest.mark.parametrize("decision", [STATIC, DYNAMIC])
def test_doing_it_again_writes_nothing(decision: VolumeDecision) -> None:
    first = Server(complete)
    first.run(decision)
    again = Server()
    again.objects = first.objects
    assert again.run(decision) == SUCCESS
    assert again.written == []


def modified(resource: str, name: str) -> Status:
    return error(
        f'Operation cannot be fulfilled on {resource} "{name}": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )


def test_what_others_have_changed_meanwhile_is_left_alone() -> None:
    for decision, path, change, expected in (
        (STATIC, VOLUME, {"spec": {"claimRef": {"namespace": "default", "name": "other", "uid": "x"}}}, "v"),
        (STATIC, VOLUME, {"spec": {"claimRef": {"namespace": "default", "name": "data", "uid": "old"}}}, "v"),
        (STATIC, CLAIM, {"spec": {"volumeName": "another"}}, "data"),
        (STATIC, CLAIM, {"metadata": {"uid": "made-again"}}, "data"),
        (DYNAMIC, CLAIM, {"metadata": {"uid": "made-again"}}, "data"),
        (DYNAMIC, CLAIM, {"metadata": {"annotations": {SELECTED: "another"}}}, "data"),
        (DYNAMIC, CLAIM, {"spec": {"volumeName": "another"}}, "data"),
    ):
        server = Server()
        for part, fields in change.items():
            server.objects[path][part] |= fields
        resource = "persistentvolumes" if path == VOLUME else "persistentvolumeclaims"
        assert server.run(decision) == modified(resource, expected)
        assert server.written == []


@pytest.mark.parametrize(
    ("decision", "call", "answer"),
    [
        (STATIC, ("GET", CLAIM), ApiAnswer(404, message="gone")),
        (STATIC, ("GET", VOLUME), ApiAnswer(404, message="gone")),
        (STATIC, ("PUT", VOLUME), ApiAnswer(409, message="modified")),
        (DYNAMIC, ("PUT", CLAIM), ApiAnswer(403, message="no rights")),
        (DYNAMIC, ("PUT", CLAIM), ApiAnswer(message="no answer")),
    ],
)
def test_what_the_server_refuses_is_told(decision: VolumeDecision, call: tuple[str, str], answer: ApiAnswer) -> None:
    server = Server()
    server.refuses[call] = answer
    assert server.run(decision) == error(answer.message)


def drop(*path: str) -> Callable[[Objects], None]:
    def dropping(found: Objects) -> None:
        holder: dict[str, Any] = found
        for part in path[:-1]:
            holder = holder.get(part, {})
        holder.pop(path[-1], None)

    return dropping


def made_elsewhere(found: Objects) -> None:
    complete(found)
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}
    found[VOLUME]["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}


def bound_to_another(zone: str) -> Callable[[Objects], None]:
    """A reservation of an earlier attempt is carried out late, and the controller follows it."""

    def binding(found: Objects) -> None:
        complete(found)
        term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}
        spec = {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}
        found[f"{VOLUME}2"] = {"metadata": {"name": "v2", "resourceVersion": "5"}, "spec": spec}
        found[CLAIM]["spec"]["volumeName"] = "v2"

    return binding


def test_a_claim_that_is_bound_to_another_volume_binds_the_pod_only_where_the_node_reaches_it() -> None:
    assert Server(bound_to_another("a")).run(STATIC) == SUCCESS
    unreachable = 'pv "v2" node affinity doesn\'t match node "n": no matching NodeSelectorTerms'
    assert Server(bound_to_another("b")).run(STATIC) == error(f"binding volumes: {unreachable}")


@pytest.mark.parametrize(
    ("decision", "during", "expected"),
    [
        (STATIC, drop(VOLUME), 'failed to check binding: "v" not found'),
        (STATIC, drop(CLAIM), 'failed to check binding: "data" not found'),
        (STATIC, drop(VOLUME, "spec", "claimRef"), 'ClaimRef got reset for pv "v"'),
        (STATIC, drop(POD), 'pod does not exist any more: "p" not found'),
        (DYNAMIC, drop(CLAIM), 'failed to check provisioning pvc: "data" not found'),
        (DYNAMIC, drop(CLAIM, "metadata", "annotations", SELECTED), 'provisioning failed for PVC "data"'),
        (
            DYNAMIC,
            made_elsewhere,
            'pv "v" node affinity doesn\'t match node "n": no matching NodeSelectorTerms',
        ),
        (DYNAMIC, lambda found: None, "context deadline exceeded"),
    ],
)
def test_what_ends_the_wait(decision: VolumeDecision, during: Callable[[Objects], None], expected: str) -> None:
    server = Server(during)
    assert server.run(decision) == error(f"binding volumes: {expected}")
    if "deadline" in expected:
        waited = sum(pause.seconds for pause in server.pauses)
        assert PATIENCE * 0.95 <= waited <= PATIENCE + server.pauses[-1].seconds
        assert len(server.pauses) < 140


def test_another_pod_of_the_name_is_another_pod() -> None:
    def replace(found: Objects) -> None:
        found[POD]["metadata"]["uid"] = "another"

    assert Server(replace).run(DYNAMIC) == error('binding volumes: pod does not exist any more: pods "p" not found')


def test_a_server_that_does_not_answer_is_asked_again() -> None:
    server = Server()
    answers = iter([False, False, True])

    def during(found: Objects) -> None:
        complete(found)
        server.refuses = (
            {} if next(answers) else {("GET", path): ApiAnswer(message="?") for path in (CLAIM, POD, VOLUME)}
        )

    server._during = during
    assert server.run(STATIC) == SUCCESS
    assert len(server.pauses) == 3


def test_a_volume_that_is_not_seen_yet_is_waited_for() -> None:
    server, seen = Server(), objects()[VOLUME]
    rounds = iter(range(5))

    def during(found: Objects) -> None:
        found[VOLUME] = deepcopy(seen)
        complete(found)
        if next(rounds) < 2:
            del found[VOLUME]

    server._during = during
    assert server.run(DYNAMIC) == SUCCESS
    assert len(server.pauses) == 3
