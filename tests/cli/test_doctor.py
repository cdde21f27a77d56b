"""flotilla doctor, against a simulated API server and real NATS and Redis servers."""

import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import formatdate
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from shared.config.settings import Settings
from shared.kube.lease import Lease
from shared.store.schema import SCHEMA
from testing.simulator.service import Simulator, SimulatorOptions
from testing.simulator.subresources import ReviewedUser
from tests.bus.support import PREFIX, a_telemetry
from tests.cli.operating import Operator, Said
from tests.cli.test_status import leader, process, whole
from tests.deploy.rendering import ROOT
from tests.deploy.rights import granted, rules_of_accounts
from tests.kube.support import api_server, client_of
from tests.servers import configured_redis, nats_server
from tests.store.support import linked_to
from tools.cli.doctor import lines
from tools.doctor.cluster import ClusterReport, _clock
from tools.doctor.findings import Level, Section, note, ok, wrong
from tools.doctor.rights import ALL, LEADERS, RULES, Right, rights_of
from tools.doctor.servers import NatsOptions, check_nats, check_redis, described_processes, described_redis

ALL_WELL = "✓"


@asynccontextmanager
async def surroundings(
    operator: Operator,
    monkeypatch: pytest.MonkeyPatch,
    *,
    redis: str = "",
    denied: frozenset[str] = frozenset(),
    users: tuple[ReviewedUser, ...] = (),
) -> AsyncIterator[tuple[Simulator, str]]:
    """An API server, NATS and Redis that the environment names; yields the first and the URL of the last."""
    async with (
        api_server(SimulatorOptions(kubelet=False, seed=1, denied=denied, users=users)) as simulator,
        nats_server() as nats,
        configured_redis(redis) as store,
    ):
        operator.reaches(nats)
        monkeypatch.setenv("FLOTILLA_REDIS_URL", store.url)
        monkeypatch.setenv("FLOTILLA_SERVER", simulator.url)
        yield simulator, store.url


def resource_of(right: Right) -> str:
    return f"{right.group}/{right.resource}" if right.group else right.resource


def joined(said: Said) -> str:
    return " ".join(said.out.split())


def fixes_of(said: Said, text: str) -> list[str]:
    """The lines below the finding that begins so."""
    found: list[str] = []
    for line in said.lines:
        if found or line.strip().startswith(text):
            if found and line[:4].strip():
                break
            found.append(line)
    return found[1:]


# The whole command


@pytest.mark.asyncio
async def test_where_all_is_well_it_says_so_in_80_columns(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    async with surroundings(operator, monkeypatch):
        said = await operator.types("doctor")
    assert (said.code, said.lines[-1]) == (0, "nothing is wrong")
    assert max(map(len, said.lines)) <= 80
    for text in ("rights: all ", "APIs: all ", "clock: ", "Leases test-*", "NATS 2.", "its keys test:* are free"):
        assert any(line.strip().startswith(f"{ALL_WELL} {text}") for line in said.lines), text
    assert "no process of Flotilla answers" in said.out


@pytest.mark.asyncio
async def test_without_anything_it_says_what_flotilla_up_would_start(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    said = await operator.types("doctor", "--prefix", "nobody")
    assert said.code == 0
    assert "no API server is named" in said.out


@pytest.mark.asyncio
async def test_missing_rights_are_named_with_a_rule_that_grants_them(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    denied = frozenset({"delete pods", "list resource.k8s.io/deviceclasses", "update coordination.k8s.io/leases"})
    async with surroundings(operator, monkeypatch, denied=denied):
        said = await operator.types("doctor")
    assert (said.code, said.lines[-1]) == (1, "3 things are wrong (✗)")
    fix = fixes_of(said, "✗ rights: may not delete pods")
    (rule,) = yaml.safe_load("\n".join(line for line in fix if not line.strip().startswith("→")))
    assert rule == {"apiGroups": [""], "resources": ["pods"], "verbs": ["delete"]}
    text = " ".join(said.out.split())
    assert "may not update leases of coordination.k8s.io in namespace kube-system" in text


@pytest.mark.asyncio
async def test_the_services_own_accounts_are_asked_about(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    def account(service: str, *without: str) -> ReviewedUser:
        may = tuple(rule for rule in rules_of_accounts()[service] if rule not in without)
        return ReviewedUser(token=service, name=f"system:serviceaccount:flotilla-system:flotilla-{service}", may=may)

    users = [account(service) for service in ALL if service != "binder"]
    ours = ("doctor", "--config", str(ROOT / "k8s" / "base" / "scheduler.yaml"), "--prefix", "flotilla")
    async with surroundings(operator, monkeypatch, users=(*users, account("binder"))) as (simulator, _):
        said = await operator.types(*ours)
        assert said.code == 0
        assert "that the accounts flotilla-* in namespace flotilla-system need" in joined(said)
        simulator.faults.fail("POST", "/subjectaccessreviews$", 403, times=1, reason="Forbidden")
        said = await operator.types(*ours)
        assert said.code == 0
        assert "the accounts flotilla-* in namespace flotilla-system may not be asked about" in joined(said)
    without, lacks = (*users, account("binder", "delete pods")), frozenset({"create pods/binding"})
    async with surroundings(operator, monkeypatch, users=without, denied=lacks):
        said = await operator.types(*ours)
    assert (said.code, said.lines[-1]) == (1, "1 thing is wrong (✗)")
    assert "✗ rights: the account flotilla-binder may not delete pods: without it there is no" in joined(said)
    assert re.search(r"- rights: this user, as whom .* would work, lacks 1 of \d+: create pods/binding ", joined(said))


@pytest.mark.asyncio
async def test_the_account_of_a_process_with_several_services_is_asked_about(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = rules_of_accounts()
    rules = {
        "core": [rule for service in LEADERS for rule in of[service]],
        "worker": of["worker"],
        "binder": of["binder"],
    }

    def account(name: str) -> ReviewedUser:
        may = tuple(rule for rule in rules[name] if rule != "list nodes")
        return ReviewedUser(token=name, name=f"system:serviceaccount:flotilla-system:flotilla-{name}", may=may)

    ours = ("doctor", "--config", str(ROOT / "k8s" / "base" / "scheduler.yaml"), "--prefix", "flotilla")
    async with surroundings(operator, monkeypatch, users=tuple(map(account, rules))):
        said = await operator.types(*ours)
    assert (said.code, said.lines[-1]) == (1, "1 thing is wrong (✗)")
    assert "✗ rights: the account flotilla-core may not list nodes: without them nothing is scheduled" in joined(said)


@pytest.mark.asyncio
async def test_a_dead_api_server_and_a_missing_api_are_found(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with surroundings(operator, monkeypatch) as (simulator, _):
        simulator.faults.fail("GET", "/apis/resource.k8s.io/", 404, times=99)
        said = await operator.types("doctor")
        assert said.code == 0
        assert "pods with claims of devices wait" in " ".join(said.out.split())
        simulator.faults.fail("GET", "/version", 401, times=99, reason="Unauthorized")
        said = await operator.types("doctor")
        assert said.code == 1
        assert "log in again" in said.out
    said = await operator.types("doctor", "--server", "http://127.0.0.1:1")
    assert said.code == 1
    assert "Connection refused" in " ".join(said.out.split())


@pytest.mark.asyncio
async def test_leaders_on_another_nats_and_keys_of_another_pipeline_are_found(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with surroundings(operator, monkeypatch) as (simulator, redis):
        async with client_of(simulator) as client:
            lease = Lease(client, "kube-system", f"{PREFIX}-queue", "stranger", 60.0)
            await lease.look(5.0)
            assert await lease.write(7, acquired=True, patience=5.0, network="another")
            other = Lease(client, "kube-system", "kube-scheduler", "master-1", 60.0)
            await other.look(5.0)
            assert await other.write(1, acquired=True, patience=5.0)
        async with linked_to(redis) as link:
            await link.call("HSET", f"{PREFIX}:meta", "schema", SCHEMA, "epoch", 7, "pipeline", "abc/elsewhere")
        said = await operator.types("doctor")
    text = " ".join(said.out.split())
    assert said.code == 1
    assert "✗ the Leases are held by leaders on another NATS than this one: stranger" in text
    assert "- kube-scheduler runs as well (master-1), and this configuration serves default-scheduler" in text
    assert "belong to the pipeline of cluster abc with its Leases in namespace elsewhere" in text


@pytest.mark.asyncio
async def test_a_redis_that_evicts_and_a_dead_one_are_found(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with surroundings(operator, monkeypatch, redis="maxmemory 64mb\nmaxmemory-policy allkeys-lru\n"):
        said = await operator.types("doctor")
        assert said.code == 1
        assert "maxmemory-policy is allkeys-lru" in said.out
    said = await operator.types("doctor", "--server", "http://127.0.0.1:1")
    assert "cannot be reached: No such file or directory" in " ".join(said.out.split())


@pytest.mark.asyncio
async def test_a_stale_url_file_and_a_wrong_configuration_are_named(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    url, config = tmp_path / "nats.url", tmp_path / "scheduler.yaml"
    url.write_text("nats://x:secret@127.0.0.1:1")
    config.write_text("kind: KubeSchedulerConfiguration\nparalelism: 3\n")
    monkeypatch.setenv("FLOTILLA_NATS_URL_FILE", str(url))
    monkeypatch.delenv("FLOTILLA_NATS_URL", raising=False)
    said = await operator.types("doctor", "--config", str(config))
    text = " ".join(said.out.split())
    assert said.code == 1
    assert "✗ NATS at 127.0.0.1:1 cannot be reached" in text
    assert "if the flotilla up that printed this variable has ended, unset it" in text
    assert "unknown field (did you mean parallelism?)" in text
    assert "secret" not in said.out
    url.unlink()
    said = await operator.types("doctor")
    assert said.code == 2
    assert "if the flotilla up that printed this variable has ended, unset FLOTILLA_NATS_URL_FILE" in said.err


# Its parts


@pytest.mark.asyncio
async def test_live_leases_of_leaders_whose_nats_is_not_named_are_wrong() -> None:
    async def cluster() -> ClusterReport:
        return ClusterReport([], networks=(("theirs", "one-queue"), ("theirs", "one-cycle")))

    nowhere = NatsOptions(Settings(nats_url="nats://127.0.0.1:1"), origin="")
    report = await check_nats(nowhere, a_telemetry(), cluster)
    assert [finding.level for finding in report.findings] == [Level.NOTE, Level.WRONG]
    assert "held by leaders on a NATS that is not named here: one-cycle, one-queue" in report.findings[1].text
    assert not report.answers


@pytest.mark.parametrize(("runs", "text"), [(True, "they say above"), (False, "flotilla up starts its own")])
@pytest.mark.asyncio
async def test_no_redis_by_default_is_no_offer_to_start_one_beside_a_pipeline(runs: bool, text: str) -> None:
    async def cluster() -> ClusterReport:
        return ClusterReport([])

    async def running() -> bool:
        return runs

    (finding,) = await check_redis(Settings(redis_url="redis://127.0.0.1:1"), "", cluster, running)
    assert (finding.level, text in finding.text) == (Level.NOTE, True)


def test_all_that_processes_miss_is_one_finding() -> None:
    away = {"cluster": "the API server does not answer"}
    statuses = [leader("queue", problems=away, version="2"), process("worker"), process("binder", problems=away)]
    differs, missing = described_processes(statuses, PREFIX, "")
    assert (differs.level, missing.level) == (Level.NOTE, Level.WRONG)
    assert missing.text.startswith("processes: not ready: queue-1, binder-1: cluster: the API server does not answer; ")
    assert "no watcher answers; no snapshot answers" in missing.text
    assert described_processes(whole(), PREFIX, "") == [ok("processes: all 6 are ready")]


def test_its_rules_are_those_of_the_manifests() -> None:
    needed = {(service, right) for rule in RULES for service in rule.who for right in rights_of([rule])}
    assert {(service, resource_of(right), right.verb) for service, right in needed} == {
        (each.service, each.resource, each.verb) for each in granted()
    }


def test_a_clock_that_is_seconds_off_is_wrong() -> None:
    now = time.time()
    assert _clock(formatdate(now, usegmt=True), now).level is Level.OK
    ahead = _clock(formatdate(now + 30, usegmt=True), now)
    assert ahead.level is Level.WRONG
    assert "behind the API server's" in ahead.text
    assert _clock(None, now).level is Level.NOTE


def test_what_info_says_of_a_redis() -> None:
    def levels(**info: object) -> list[Level]:
        return [finding.level for finding in described_redis("here", {"redis_version": "7.2.0", **info})]

    assert levels() == [Level.OK, Level.OK]
    assert Level.WRONG in levels(redis_version="5.0.1")
    assert Level.WRONG in levels(role="slave")
    assert Level.WRONG in levels(cluster_enabled=1)
    assert Level.WRONG in levels(rdb_last_bgsave_status="err")
    assert Level.WRONG in levels(loading=1)
    assert Level.WRONG in levels(maxmemory=100, used_memory=99)
    assert Level.WRONG not in levels(maxmemory_policy="allkeys-lru")
    (first, *_) = described_redis("here", {"redis_version": "7.2.4", "valkey_version": "8.1.1"})
    assert first == ok("Valkey 8.1.1 at here")


def test_long_findings_are_wrapped_and_rules_are_not() -> None:
    rule = "  - apiGroups: [" + ", ".join(["group.example.com"] * 6) + "]"
    section = Section("x", [wrong("many words " * 30, "mend it " * 30, rule), note("n")])
    shown = list(lines([section], 80, colour=False))
    assert max(len(line) for line in shown if "apiGroups" not in line) <= 80
    assert sum("apiGroups" in line for line in shown) == 1
    assert shown[-1] == "1 thing is wrong (✗)"
    assert "\x1b[31m✗\x1b[0m" in "\n".join(lines([section], 80, colour=True))
