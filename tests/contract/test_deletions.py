"""Deletions and evictions: grace periods, preconditions, finalizers and disruption budgets."""

import pytest

from tests.contract.sandbox import Sandbox, a_pod
from tests.contract.server import MERGE, Object

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_an_unbound_pod_is_removed_at_once(sandbox: Sandbox) -> None:
    await sandbox.pod("unbound")
    gone = await sandbox.server.delete(f"{sandbox.pods}/unbound")
    assert (gone["kind"], gone["metadata"]["name"]) == ("Pod", "unbound")
    await sandbox.server.refused(404, "NotFound", "GET", f"{sandbox.pods}/unbound")


async def test_a_finished_pod_is_removed_at_once(sandbox: Sandbox) -> None:
    await sandbox.bound_pod("finished")
    await sandbox.server.patch(f"{sandbox.pods}/finished/status", {"status": {"phase": "Failed"}})
    await sandbox.server.delete(f"{sandbox.pods}/finished")
    await sandbox.server.refused(404, "NotFound", "GET", f"{sandbox.pods}/finished")


async def test_a_bound_pod_gets_its_grace_period(sandbox: Sandbox) -> None:
    await sandbox.bound_pod("bound", terminationGracePeriodSeconds=7)
    path = f"{sandbox.pods}/bound"
    steps: list[tuple[str, Object | None, int]] = [
        (path, None, 7),
        (f"{path}?gracePeriodSeconds=5", None, 5),
        (path, {"gracePeriodSeconds": 60}, 5),
    ]
    for asked, options, grace in steps:
        left = await sandbox.server.delete(asked, options)
        assert left["metadata"]["deletionTimestamp"]
        assert left["metadata"]["deletionGracePeriodSeconds"] == grace
        assert sandbox.is_of_generation(left, 2)
    await sandbox.server.delete(path, {"gracePeriodSeconds": 0})
    await sandbox.server.refused(404, "NotFound", "GET", path)


async def test_a_deletion_cannot_be_undone(sandbox: Sandbox) -> None:
    await sandbox.bound_pod("final")
    await sandbox.server.delete(f"{sandbox.pods}/final")
    patched = await sandbox.server.patch(f"{sandbox.pods}/final", {"metadata": {"labels": {"a": "b"}}})
    assert patched["metadata"]["deletionTimestamp"]


async def test_a_removal_at_once_is_two_watch_events(sandbox: Sandbox) -> None:
    """MODIFIED with a grace period of zero, then DELETED."""
    version = (await sandbox.server.get(sandbox.pods))["metadata"]["resourceVersion"]
    async with sandbox.server.watching(f"{sandbox.pods}?resourceVersion={version}") as watch:
        await sandbox.pod("steps")
        await sandbox.server.delete(f"{sandbox.pods}/steps")
        added, modified, deleted = await watch.events(3)
    assert (added["type"], modified["type"], deleted["type"]) == ("ADDED", "MODIFIED", "DELETED")
    for event in (modified, deleted):
        metadata = event["object"]["metadata"]
        assert metadata["deletionTimestamp"]
        assert metadata["deletionGracePeriodSeconds"] == 0
        assert sandbox.is_of_generation(event["object"], 2)
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in (added, modified, deleted)]
    assert versions == sorted(set(versions))


async def test_finalizers_delay_the_removal(sandbox: Sandbox) -> None:
    held = a_pod("held")
    held["metadata"]["finalizers"] = ["flotilla.io/contract"]
    await sandbox.server.post(sandbox.pods, held)
    path = f"{sandbox.pods}/held"
    left = await sandbox.server.delete(path)
    assert left["metadata"]["deletionTimestamp"]
    again = await sandbox.server.delete(path)
    assert again["metadata"]["deletionTimestamp"] == left["metadata"]["deletionTimestamp"]
    await sandbox.server.patch(path, {"metadata": {"finalizers": None}})
    await sandbox.server.refused(404, "NotFound", "GET", path)


async def test_a_deletion_can_require_a_uid(sandbox: Sandbox) -> None:
    pod = await sandbox.pod("meant")
    path = f"{sandbox.pods}/meant"
    for wrong in ({"uid": "another"}, {"resourceVersion": "1"}):
        await sandbox.server.refused(409, "Conflict", "DELETE", path, {"preconditions": wrong})
    right = {"uid": pod["metadata"]["uid"], "resourceVersion": pod["metadata"]["resourceVersion"]}
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": right}
    await sandbox.server.delete(path, options)
    status = await sandbox.server.refused(404, "NotFound", "DELETE", path, options)
    assert (status["message"], status["details"]) == ('pods "meant" not found', {"name": "meant", "kind": "pods"})


async def test_the_answer_to_a_deletion_depends_on_the_kind(sandbox: Sandbox) -> None:
    made = await sandbox.server.post(sandbox.configs, {"metadata": {"name": "other"}})
    done = await sandbox.server.delete(f"{sandbox.configs}/other")
    assert (done["kind"], done["status"]) == ("Status", "Success")
    assert done["details"] == {"name": "other", "kind": "configmaps", "uid": made["metadata"]["uid"]}


async def test_a_dry_run_of_a_deletion_changes_nothing(sandbox: Sandbox) -> None:
    await sandbox.pod("tried")
    await sandbox.server.delete(f"{sandbox.pods}/tried?dryRun=All")
    assert "deletionTimestamp" not in (await sandbox.server.get(f"{sandbox.pods}/tried"))["metadata"]


async def test_pods_are_deleted_by_label(sandbox: Sandbox) -> None:
    for name in ("many-a", "many-b", "spared"):
        await sandbox.pod(name, {"many": name.partition("-")[0]})
    await sandbox.server.delete(f"{sandbox.pods}?labelSelector=many%3Dmany")
    left = await sandbox.server.get(f"{sandbox.pods}?labelSelector=many")
    assert [item["metadata"]["name"] for item in left["items"]] == ["spared"]


# Budgets and evictions


async def a_budget(sandbox: Sandbox, name: str, allowed: int) -> Object:
    """A budget of the pods with its name as a label, with the status that a controller would write."""
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"budget": name}}}
    made = await sandbox.server.post(sandbox.budgets, {"metadata": {"name": name}, "spec": spec})
    assert made["metadata"]["generation"] == 1
    counts = {"disruptionsAllowed": allowed, "currentHealthy": 1 + allowed, "desiredHealthy": 1, "expectedPods": 2}
    status = {"status": {**counts, "observedGeneration": 1}}
    patched = await sandbox.server.patch(f"{sandbox.budgets}/{name}/status", status)
    assert patched["metadata"]["generation"] == 1
    return patched


async def running(sandbox: Sandbox, name: str, budget: str) -> None:
    await sandbox.pod(name, {"budget": budget})
    await sandbox.bind(name, sandbox.unique("n"))
    ready = [{"type": "Ready", "status": "True"}]
    await sandbox.server.patch(f"{sandbox.pods}/{name}/status", {"status": {"phase": "Running", "conditions": ready}})


async def test_the_status_of_a_budget_is_a_subresource(sandbox: Sandbox) -> None:
    budget = await a_budget(sandbox, "apart", 1)
    assert (budget["status"]["disruptionsAllowed"], budget["status"]["observedGeneration"]) == (1, 1)
    changed = await sandbox.server.patch(
        f"{sandbox.budgets}/apart", {"spec": {"minAvailable": 2}, "status": {"disruptionsAllowed": 9}}, MERGE
    )
    assert changed["metadata"]["generation"] == 2
    assert changed["status"]["disruptionsAllowed"] != 9


async def test_an_eviction_counts_against_the_budget(sandbox: Sandbox) -> None:
    await a_budget(sandbox, "spends", 1)
    for name in ("spends-a", "spends-b"):
        await running(sandbox, name, "spends")
    path = f"{sandbox.pods}/spends-a/eviction"
    answer = await sandbox.server.ask("POST", path, {"metadata": {"name": "spends-a"}})
    assert (answer.status, answer.body["status"]) == (201, "Success")
    assert (await sandbox.server.get(f"{sandbox.pods}/spends-a"))["metadata"]["deletionTimestamp"]
    status = (await sandbox.server.get(f"{sandbox.budgets}/spends"))["status"]
    assert (status["disruptionsAllowed"], list(status["disruptedPods"])) == (0, ["spends-a"])
    path = f"{sandbox.pods}/spends-b/eviction"
    refused = await sandbox.server.refused(429, "TooManyRequests", "POST", path, {"metadata": {"name": "spends-b"}})
    assert refused["message"] == "Cannot evict pod as it would violate the pod's disruption budget."
    cause = refused["details"]["causes"][0]
    assert cause["reason"] == "DisruptionBudget"
    assert cause["message"].startswith("The disruption budget spends ")
    assert "deletionTimestamp" not in (await sandbox.server.get(f"{sandbox.pods}/spends-b"))["metadata"]


async def test_an_eviction_waits_for_an_outdated_budget(sandbox: Sandbox) -> None:
    """Until a controller has updated its status, if there is one."""
    await a_budget(sandbox, "behind", 1)
    await running(sandbox, "behind-a", "behind")
    await sandbox.server.patch(f"{sandbox.budgets}/behind", {"spec": {"minAvailable": 0}})
    path = f"{sandbox.pods}/behind-a/eviction"
    answer = await sandbox.server.ask("POST", path, {"metadata": {"name": "behind-a"}})
    assert answer.status in (201, 429)
    if answer.status == 429:
        assert answer.retry_after == "10"
        assert "The disruption budget behind is still being processed by the server." in str(answer.body["details"])


async def test_an_eviction_without_a_budget_is_a_deletion(sandbox: Sandbox) -> None:
    await running(sandbox, "free", "none")
    await sandbox.server.post(f"{sandbox.pods}/free/eviction", {"metadata": {"name": "free"}})
    assert (await sandbox.server.get(f"{sandbox.pods}/free"))["metadata"]["deletionTimestamp"]
    options = {"preconditions": {"uid": "another"}}
    other = {"metadata": {"name": "free"}, "deleteOptions": options}
    await sandbox.server.refused(409, "Conflict", "POST", f"{sandbox.pods}/free/eviction", other)
    await sandbox.server.refused(
        404, "NotFound", "POST", f"{sandbox.pods}/missing/eviction", {"metadata": {"name": "missing"}}
    )
