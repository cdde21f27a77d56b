"""Bindings: a pod is bound once, to any node name, unless the binding is refused."""

import pytest

from tests.contract.sandbox import Sandbox, a_binding, a_pod, condition_of

LOCATED = ("located", "made-there")

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_pod_is_bound(sandbox: Sandbox) -> None:
    await sandbox.pod("bound")
    answer = await sandbox.server.ask("POST", f"{sandbox.pods}/bound/binding", a_binding("bound", "n"))
    assert (answer.status, answer.body["kind"], answer.body["status"]) == (201, "Status", "Success")
    pod = await sandbox.server.get(f"{sandbox.pods}/bound")
    assert (pod["spec"]["nodeName"], pod["status"]["phase"]) == ("n", "Pending")
    assert condition_of(pod, "PodScheduled")["status"] == "True"
    assert sandbox.is_of_generation(pod, 1)


async def test_a_bound_pod_is_not_bound_again(sandbox: Sandbox) -> None:
    await sandbox.bound_pod("twice")
    node = sandbox.unique("nowhere")
    for again in ("other", node):
        path = f"{sandbox.pods}/twice/binding"
        status = await sandbox.server.refused(409, "Conflict", "POST", path, a_binding("twice", again))
        why = f'pod twice is already assigned to node "{node}"'
        assert status["message"] == f'Operation cannot be fulfilled on pods/binding "twice": {why}'
        assert status["details"] == {"name": "twice", "kind": "pods/binding"}
    assert (await sandbox.server.get(f"{sandbox.pods}/twice"))["spec"]["nodeName"] == node


async def test_a_binding_can_require_a_uid(sandbox: Sandbox) -> None:
    pod = await sandbox.pod("meant")
    path = f"{sandbox.pods}/meant/binding"
    status = await sandbox.server.refused(409, "Conflict", "POST", path, a_binding("meant", "n", uid="another"))
    assert "UID" in status["message"]
    await sandbox.server.post(path, a_binding("meant", "n", uid=pod["metadata"]["uid"]))


async def test_a_binding_can_require_a_version(sandbox: Sandbox) -> None:
    pod = await sandbox.pod("seen")
    await sandbox.server.patch(f"{sandbox.pods}/seen", {"metadata": {"labels": {"changed": "yes"}}})
    binding = a_binding("seen", "n", resourceVersion=pod["metadata"]["resourceVersion"])
    await sandbox.server.refused(409, "Conflict", "POST", f"{sandbox.pods}/seen/binding", binding)


async def test_a_binding_adds_annotations_and_labels(sandbox: Sandbox) -> None:
    await sandbox.server.post(sandbox.pods, {**a_pod("brings", {"kept": "a", "changed": "a"})})
    binding = a_binding("brings", "n", annotations={"note": "b"}, labels={"changed": "b"})
    await sandbox.server.post(f"{sandbox.pods}/brings/binding", binding)
    metadata = (await sandbox.server.get(f"{sandbox.pods}/brings"))["metadata"]
    assert metadata["annotations"] == {"note": "b"}
    assert metadata["labels"] == {"kept": "a", "changed": "b"}


async def test_a_pod_inherits_topology_labels_from_its_node(sandbox: Sandbox) -> None:
    where = {"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r"}
    node = await sandbox.node("somewhere", {**where, "other": "x"})
    await sandbox.pod("located", {"app": "a", "topology.kubernetes.io/zone": "elsewhere"})
    await sandbox.bind("located", node)
    await sandbox.pod("made-there", nodeName=node)
    if sandbox.server.since(35):
        labels = {name: (await sandbox.server.get(f"{sandbox.pods}/{name}"))["metadata"]["labels"] for name in LOCATED}
        assert labels == {"located": {"app": "a", **where}, "made-there": where}


async def test_a_pod_that_is_being_deleted_is_not_bound(sandbox: Sandbox) -> None:
    held = a_pod("leaving")
    held["metadata"]["finalizers"] = ["flotilla.io/contract"]
    await sandbox.server.post(sandbox.pods, held)
    await sandbox.server.delete(f"{sandbox.pods}/leaving")
    path = f"{sandbox.pods}/leaving/binding"
    status = await sandbox.server.refused(409, "Conflict", "POST", path, a_binding("leaving", "n"))
    assert "pod leaving is being deleted, cannot be assigned to a host" in status["message"]


async def test_a_gated_pod_is_not_bound(sandbox: Sandbox) -> None:
    await sandbox.pod("gated", schedulingGates=[{"name": "example.com/wait"}])
    path = f"{sandbox.pods}/gated/binding"
    status = await sandbox.server.refused(409, "Conflict", "POST", path, a_binding("gated", "n"))
    assert "pod gated has non-empty .spec.schedulingGates" in status["message"]


async def test_a_missing_pod_is_not_found(sandbox: Sandbox) -> None:
    path = f"{sandbox.pods}/missing/binding"
    status = await sandbox.server.refused(404, "NotFound", "POST", path, a_binding("missing", "n"))
    assert status["message"] == 'pods "missing" not found'
    assert status["details"] == {"name": "missing", "kind": "pods"}


async def test_invalid_bindings_are_refused(sandbox: Sandbox) -> None:
    await sandbox.pod("senseless")
    path = f"{sandbox.pods}/senseless/binding"
    wrong_kind = {"metadata": {"name": "senseless"}, "target": {"kind": "Pod", "name": "n"}}
    no_node = {"metadata": {"name": "senseless"}, "target": {"kind": "Node"}}
    for wrong in (wrong_kind, no_node):
        answer = await sandbox.server.ask("POST", path, wrong)
        assert (answer.status, answer.body["kind"], answer.body["status"]) == (500, "Status", "Failure")
    await sandbox.server.refused(400, "BadRequest", "POST", path, a_binding("another", "n"))
    assert "nodeName" not in (await sandbox.server.get(f"{sandbox.pods}/senseless"))["spec"]


async def test_a_dry_run_of_a_binding_changes_nothing(sandbox: Sandbox) -> None:
    await sandbox.pod("tried")
    await sandbox.server.post(f"{sandbox.pods}/tried/binding?dryRun=All", a_binding("tried", "n"))
    assert "nodeName" not in (await sandbox.server.get(f"{sandbox.pods}/tried"))["spec"]
