"""A pod is bound once, to whatever node is named, unless something speaks against it."""

import pytest

from tests.contract.place import Place, a_binding, a_pod, condition_of

LOCATED = ("located", "made-there")

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_pod_is_bound(place: Place) -> None:
    await place.pod("bound")
    answer = await place.server.ask("POST", f"{place.pods}/bound/binding", a_binding("bound", "n"))
    assert (answer.status, answer.body["kind"], answer.body["status"]) == (201, "Status", "Success")
    pod = await place.server.get(f"{place.pods}/bound")
    assert (pod["spec"]["nodeName"], pod["status"]["phase"]) == ("n", "Pending")
    assert condition_of(pod, "PodScheduled")["status"] == "True"
    assert place.is_of_generation(pod, 1)


async def test_a_bound_pod_is_not_bound_again(place: Place) -> None:
    await place.bound_pod("twice")
    node = place.unique("nowhere")
    for again in ("other", node):
        path = f"{place.pods}/twice/binding"
        status = await place.server.refused(409, "Conflict", "POST", path, a_binding("twice", again))
        why = f'pod twice is already assigned to node "{node}"'
        assert status["message"] == f'Operation cannot be fulfilled on pods/binding "twice": {why}'
        assert status["details"] == {"name": "twice", "kind": "pods/binding"}
    assert (await place.server.get(f"{place.pods}/twice"))["spec"]["nodeName"] == node


async def test_a_binding_may_say_which_pod_it_means(place: Place) -> None:
    pod = await place.pod("meant")
    path = f"{place.pods}/meant/binding"
    status = await place.server.refused(409, "Conflict", "POST", path, a_binding("meant", "n", uid="another"))
    assert "UID" in status["message"]
    await place.server.post(path, a_binding("meant", "n", uid=pod["metadata"]["uid"]))


async def test_a_binding_may_say_which_version_it_means(place: Place) -> None:
    pod = await place.pod("seen")
    await place.server.patch(f"{place.pods}/seen", {"metadata": {"labels": {"changed": "yes"}}})
    binding = a_binding("seen", "n", resourceVersion=pod["metadata"]["resourceVersion"])
    await place.server.refused(409, "Conflict", "POST", f"{place.pods}/seen/binding", binding)


async def test_a_binding_brings_annotations_and_labels(place: Place) -> None:
    await place.server.post(place.pods, {**a_pod("brings", {"kept": "a", "changed": "a"})})
    binding = a_binding("brings", "n", annotations={"note": "b"}, labels={"changed": "b"})
    await place.server.post(f"{place.pods}/brings/binding", binding)
    metadata = (await place.server.get(f"{place.pods}/brings"))["metadata"]
    assert metadata["annotations"] == {"note": "b"}
    assert metadata["labels"] == {"kept": "a", "changed": "b"}


async def test_a_pod_gets_from_its_node_where_it_is(place: Place) -> None:
    where = {"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r"}
    node = await place.node("somewhere", {**where, "other": "x"})
    await place.pod("located", {"app": "a", "topology.kubernetes.io/zone": "elsewhere"})
    await place.bind("located", node)
    await place.pod("made-there", nodeName=node)
    if place.server.since(35):
        labels = {name: (await place.server.get(f"{place.pods}/{name}"))["metadata"]["labels"] for name in LOCATED}
        assert labels == {"located": {"app": "a", **where}, "made-there": where}


async def test_a_pod_that_is_being_deleted_is_not_bound(place: Place) -> None:
    held = a_pod("leaving")
    held["metadata"]["finalizers"] = ["flotilla.io/contract"]
    await place.server.post(place.pods, held)
    await place.server.delete(f"{place.pods}/leaving")
    path = f"{place.pods}/leaving/binding"
    status = await place.server.refused(409, "Conflict", "POST", path, a_binding("leaving", "n"))
    assert "pod leaving is being deleted, cannot be assigned to a host" in status["message"]


async def test_a_gated_pod_is_not_bound(place: Place) -> None:
    await place.pod("gated", schedulingGates=[{"name": "example.com/wait"}])
    path = f"{place.pods}/gated/binding"
    status = await place.server.refused(409, "Conflict", "POST", path, a_binding("gated", "n"))
    assert "pod gated has non-empty .spec.schedulingGates" in status["message"]


async def test_a_pod_that_is_not_there_is_not_found(place: Place) -> None:
    path = f"{place.pods}/missing/binding"
    status = await place.server.refused(404, "NotFound", "POST", path, a_binding("missing", "n"))
    assert status["message"] == 'pods "missing" not found'
    assert status["details"] == {"name": "missing", "kind": "pods"}


async def test_bindings_that_make_no_sense(place: Place) -> None:
    await place.pod("senseless")
    path = f"{place.pods}/senseless/binding"
    wrong_kind = {"metadata": {"name": "senseless"}, "target": {"kind": "Pod", "name": "n"}}
    no_node = {"metadata": {"name": "senseless"}, "target": {"kind": "Node"}}
    for wrong in (wrong_kind, no_node):
        answer = await place.server.ask("POST", path, wrong)
        assert (answer.status, answer.body["kind"], answer.body["status"]) == (500, "Status", "Failure")
    await place.server.refused(400, "BadRequest", "POST", path, a_binding("another", "n"))
    assert "nodeName" not in (await place.server.get(f"{place.pods}/senseless"))["spec"]


async def test_a_binding_can_be_tried(place: Place) -> None:
    await place.pod("tried")
    await place.server.post(f"{place.pods}/tried/binding?dryRun=All", a_binding("tried", "n"))
    assert "nodeName" not in (await place.server.get(f"{place.pods}/tried"))["spec"]
