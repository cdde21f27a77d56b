"""Deletions and evictions: with grace and without, under conditions, and held by finalizers and budgets."""

import pytest

from tests.contract.place import Place, a_pod
from tests.contract.server import MERGE, Object

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_an_unbound_pod_goes_at_once(place: Place) -> None:
    await place.pod("unbound")
    gone = await place.server.delete(f"{place.pods}/unbound")
    assert (gone["kind"], gone["metadata"]["name"]) == ("Pod", "unbound")
    await place.server.refused(404, "NotFound", "GET", f"{place.pods}/unbound")


async def test_a_finished_pod_goes_at_once(place: Place) -> None:
    await place.bound_pod("finished")
    await place.server.patch(f"{place.pods}/finished/status", {"status": {"phase": "Failed"}})
    await place.server.delete(f"{place.pods}/finished")
    await place.server.refused(404, "NotFound", "GET", f"{place.pods}/finished")


async def test_a_bound_pod_has_its_grace(place: Place) -> None:
    await place.bound_pod("bound", terminationGracePeriodSeconds=7)
    path = f"{place.pods}/bound"
    steps: list[tuple[str, Object | None, int]] = [
        (path, None, 7),
        (f"{path}?gracePeriodSeconds=5", None, 5),
        (path, {"gracePeriodSeconds": 60}, 5),
    ]
    for asked, options, grace in steps:
        left = await place.server.delete(asked, options)
        assert left["metadata"]["deletionTimestamp"]
        assert left["metadata"]["deletionGracePeriodSeconds"] == grace
        assert place.is_of_generation(left, 2)
    await place.server.delete(path, {"gracePeriodSeconds": 0})
    await place.server.refused(404, "NotFound", "GET", path)


async def test_what_is_terminating_cannot_come_back(place: Place) -> None:
    await place.bound_pod("final")
    await place.server.delete(f"{place.pods}/final")
    patched = await place.server.patch(f"{place.pods}/final", {"metadata": {"labels": {"a": "b"}}})
    assert patched["metadata"]["deletionTimestamp"]


async def test_going_at_once_is_told_in_two_steps(place: Place) -> None:
    """First that it is to go, within no time, then that it has gone."""
    version = (await place.server.get(place.pods))["metadata"]["resourceVersion"]
    async with place.server.watching(f"{place.pods}?resourceVersion={version}") as watch:
        await place.pod("steps")
        await place.server.delete(f"{place.pods}/steps")
        added, modified, deleted = await watch.events(3)
    assert (added["type"], modified["type"], deleted["type"]) == ("ADDED", "MODIFIED", "DELETED")
    for event in (modified, deleted):
        metadata = event["object"]["metadata"]
        assert metadata["deletionTimestamp"]
        assert metadata["deletionGracePeriodSeconds"] == 0
        assert place.is_of_generation(event["object"], 2)
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in (added, modified, deleted)]
    assert versions == sorted(set(versions))


async def test_finalizers_hold(place: Place) -> None:
    held = a_pod("held")
    held["metadata"]["finalizers"] = ["flotilla.io/contract"]
    await place.server.post(place.pods, held)
    path = f"{place.pods}/held"
    left = await place.server.delete(path)
    assert left["metadata"]["deletionTimestamp"]
    again = await place.server.delete(path)
    assert again["metadata"]["deletionTimestamp"] == left["metadata"]["deletionTimestamp"]
    await place.server.patch(path, {"metadata": {"finalizers": None}})
    await place.server.refused(404, "NotFound", "GET", path)


async def test_a_deletion_may_say_which_pod_it_means(place: Place) -> None:
    pod = await place.pod("meant")
    path = f"{place.pods}/meant"
    for wrong in ({"uid": "another"}, {"resourceVersion": "1"}):
        await place.server.refused(409, "Conflict", "DELETE", path, {"preconditions": wrong})
    right = {"uid": pod["metadata"]["uid"], "resourceVersion": pod["metadata"]["resourceVersion"]}
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": right}
    await place.server.delete(path, options)
    status = await place.server.refused(404, "NotFound", "DELETE", path, options)
    assert (status["message"], status["details"]) == ('pods "meant" not found', {"name": "meant", "kind": "pods"})


async def test_other_kinds_answer_with_what_was_done(place: Place) -> None:
    made = await place.server.post(place.configs, {"metadata": {"name": "other"}})
    done = await place.server.delete(f"{place.configs}/other")
    assert (done["kind"], done["status"]) == ("Status", "Success")
    assert done["details"] == {"name": "other", "kind": "configmaps", "uid": made["metadata"]["uid"]}


async def test_a_deletion_can_be_tried(place: Place) -> None:
    await place.pod("tried")
    await place.server.delete(f"{place.pods}/tried?dryRun=All")
    assert "deletionTimestamp" not in (await place.server.get(f"{place.pods}/tried"))["metadata"]


async def test_many_are_deleted_by_label(place: Place) -> None:
    for name in ("many-a", "many-b", "spared"):
        await place.pod(name, {"many": name.partition("-")[0]})
    await place.server.delete(f"{place.pods}?labelSelector=many%3Dmany")
    left = await place.server.get(f"{place.pods}?labelSelector=many")
    assert [item["metadata"]["name"] for item in left["items"]] == ["spared"]


# Budgets and evictions


async def a_budget(place: Place, name: str, allowed: int) -> Object:
    """Of the pods with its name as a label; its status is what a controller would work out."""
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"budget": name}}}
    made = await place.server.post(place.budgets, {"metadata": {"name": name}, "spec": spec})
    assert made["metadata"]["generation"] == 1
    counts = {"disruptionsAllowed": allowed, "currentHealthy": 1 + allowed, "desiredHealthy": 1, "expectedPods": 2}
    status = {"status": {**counts, "observedGeneration": 1}}
    patched = await place.server.patch(f"{place.budgets}/{name}/status", status)
    assert patched["metadata"]["generation"] == 1
    return patched


async def running(place: Place, name: str, budget: str) -> None:
    await place.pod(name, {"budget": budget})
    await place.bind(name, place.unique("n"))
    ready = [{"type": "Ready", "status": "True"}]
    await place.server.patch(f"{place.pods}/{name}/status", {"status": {"phase": "Running", "conditions": ready}})


async def test_the_status_of_a_budget_is_written_apart(place: Place) -> None:
    budget = await a_budget(place, "apart", 1)
    assert (budget["status"]["disruptionsAllowed"], budget["status"]["observedGeneration"]) == (1, 1)
    changed = await place.server.patch(
        f"{place.budgets}/apart", {"spec": {"minAvailable": 2}, "status": {"disruptionsAllowed": 9}}, MERGE
    )
    assert changed["metadata"]["generation"] == 2
    assert changed["status"]["disruptionsAllowed"] != 9


async def test_an_eviction_takes_from_the_budget(place: Place) -> None:
    await a_budget(place, "spends", 1)
    for name in ("spends-a", "spends-b"):
        await running(place, name, "spends")
    path = f"{place.pods}/spends-a/eviction"
    answer = await place.server.ask("POST", path, {"metadata": {"name": "spends-a"}})
    assert (answer.status, answer.body["status"]) == (201, "Success")
    assert (await place.server.get(f"{place.pods}/spends-a"))["metadata"]["deletionTimestamp"]
    status = (await place.server.get(f"{place.budgets}/spends"))["status"]
    assert (status["disruptionsAllowed"], list(status["disruptedPods"])) == (0, ["spends-a"])
    path = f"{place.pods}/spends-b/eviction"
    refused = await place.server.refused(429, "TooManyRequests", "POST", path, {"metadata": {"name": "spends-b"}})
    assert refused["message"] == "Cannot evict pod as it would violate the pod's disruption budget."
    cause = refused["details"]["causes"][0]
    assert cause["reason"] == "DisruptionBudget"
    assert cause["message"].startswith("The disruption budget spends ")
    assert "deletionTimestamp" not in (await place.server.get(f"{place.pods}/spends-b"))["metadata"]


async def test_a_budget_that_was_changed_is_waited_for(place: Place) -> None:
    """Until a controller has looked at it, if there is one."""
    await a_budget(place, "behind", 1)
    await running(place, "behind-a", "behind")
    await place.server.patch(f"{place.budgets}/behind", {"spec": {"minAvailable": 0}})
    path = f"{place.pods}/behind-a/eviction"
    answer = await place.server.ask("POST", path, {"metadata": {"name": "behind-a"}})
    assert answer.status in (201, 429)
    if answer.status == 429:
        assert answer.retry_after == "10"
        assert "The disruption budget behind is still being processed by the server." in str(answer.body["details"])


async def test_an_eviction_without_a_budget_is_a_deletion(place: Place) -> None:
    await running(place, "free", "none")
    await place.server.post(f"{place.pods}/free/eviction", {"metadata": {"name": "free"}})
    assert (await place.server.get(f"{place.pods}/free"))["metadata"]["deletionTimestamp"]
    options = {"preconditions": {"uid": "another"}}
    other = {"metadata": {"name": "free"}, "deleteOptions": options}
    await place.server.refused(409, "Conflict", "POST", f"{place.pods}/free/eviction", other)
    await place.server.refused(
        404, "NotFound", "POST", f"{place.pods}/missing/eviction", {"metadata": {"name": "missing"}}
    )
