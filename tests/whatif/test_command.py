"""flotilla whatif and flotilla capacity, as one types them: on a dump, and on a pipeline."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from services.snapshot.core import SnapshotCore
from services.snapshot.events import NodeSeen, PodSeen
from testing.builders import node, pod
from tests.cli.operating import Operator
from tests.extenders.server import an_extender
from tests.whatif.support import a_pipeline
from tests.whatif.test_questions import a_live, a_node
from tools import live_state
from tools.cli.main import main

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop}
spec:
  containers: [{name: c, image: i, resources: {requests: {cpu: "3"}}}]
"""
GROUPS = '- {name: big, max: 3, price: 2, template: {status: {allocatable: {cpu: "8", memory: 8Gi, pods: "9"}}}}\n'

Types = Callable[..., tuple[int, list[str], list[str]]]


@pytest.fixture
def types(capsys: pytest.CaptureFixture[str]) -> Types:
    def typed(*arguments: str) -> tuple[int, list[str], list[str]]:
        capsys.readouterr()
        code = main(arguments)
        said = capsys.readouterr()
        return code, said.out.splitlines(), said.err.splitlines()

    return typed


@pytest.fixture
def dump(tmp_path: Path) -> str:
    low = pod("low").request(cpu="1").owner("ReplicaSet", "low").on("n1")
    live_state.save(a_live(a_node("n1", 4), pods=(low,)), tmp_path)
    live_state.save_pods({"n1": [low.build()]}, tmp_path)
    (tmp_path / "pod.yaml").write_text(POD)
    (tmp_path / "two.yaml").write_text(f"{POD}---\n{POD.replace('name: web', 'name: other')}")
    (tmp_path / "groups.yaml").write_text(GROUPS)
    return str(tmp_path)


def test_where_pods_go(types: Types, dump: str) -> None:
    code, out, _ = types("whatif", "-f", f"{dump}/pod.yaml", "--from", dump)
    assert (code, out[0]) == (0, "1 pod would be scheduled on 1 node")
    assert out[2:] == ["POD       FROM  RESULT", "shop/web  new   n1"]


def test_what_does_not_fit_and_why(types: Types, dump: str) -> None:
    code, out, _ = types("whatif", "-f", f"{dump}/two.yaml", "--from", dump)
    assert (code, out[0]) == (1, "1 of 2 pods would be scheduled on 1 node, 1 unschedulable")
    assert out[-1].startswith("shop/other unschedulable: 0/1 nodes are available: 1 Insufficient cpu.")
    _, out, _ = types("whatif", "-f", f"{dump}/two.yaml", "--from", dump, "-o", "json")
    told = json.loads("\n".join(out))
    assert [each["verdict"] for each in told["pods"]] == ["scheduled", "unschedulable"]


def test_a_dump_has_the_pods_of_a_node_that_is_drained(types: Types, dump: str) -> None:
    code, out, _ = types("whatif", "--drain", "n1", "--from", dump, "--round-size", "4")
    assert (code, out[3]) == (1, "default/low  recreated from n1  unschedulable")


def test_the_nodes_that_are_needed(types: Types, dump: str) -> None:
    arguments = ("-f", f"{dump}/two.yaml", "--from", dump, "--node-groups", f"{dump}/groups.yaml")
    code, out, _ = types("whatif", *arguments)
    assert (code, out[0]) == (0, "2 pods would be scheduled on 1 node")
    assert out[2] == "needed: 1 big; price 2 (no cheaper set does; 3 sets tried)"


def test_capacity(types: Types, dump: str) -> None:
    code, out, _ = types("capacity", "-f", f"{dump}/pod.yaml", "--from", dump, "--add-nodes", "2", "--like", "n1")
    assert (code, out[0]) == (0, "3 more of this pod fit; 1 before the change")
    assert any(line.startswith("the next one does not: 0/3 nodes are available") for line in out)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["-f", "no.yaml"], "cannot read no.yaml: No such file or directory"),
        (["--from", "nowhere"], "nowhere/live_state.msgpack cannot be read: No such file or directory; make it by"),
        (["--drain", "n9"], "drain: there is no node n9"),
        (["--node-groups", "pod.yaml"], "pod.yaml: a list of groups with name, max, price, and like or template"),
        (["--config", "two.yaml"], "two.yaml: expected one KubeSchedulerConfiguration"),
        (["--add-nodes", "2"], "add_nodes: say which node they are like"),
    ],
)
def test_errors_in_plain_words(
    types: Types, dump: str, arguments: list[str], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(dump)
    given = arguments if "--from" in arguments else [*arguments, "--from", dump]
    code, out, err = types("whatif", *given)
    assert (code, out, len(err)) == (2, [], 1)
    assert err[0].startswith(f"flotilla: {why}")


@pytest.mark.asyncio
async def test_a_running_pipeline_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], dump: str
) -> None:
    operator, core = Operator(monkeypatch, capsys), SnapshotCore(1)
    core.handle(NodeSeen(node("n1").capacity(cpu=4, memory="8Gi", pods=9).build()), 0.0)
    core.handle(PodSeen(pod("low").request(cpu="2").on("n1").build()), 0.0)
    async with a_pipeline(core) as (nats, _):
        operator.reaches(nats)
        said = await operator.types("whatif", "-f", f"{dump}/pod.yaml")
        assert said.lines, said.err
        assert (said.code, said.lines[0]) == (1, "none of 1 pod would be scheduled, 1 unschedulable")
        said = await operator.types("whatif")
        assert (said.code, said.lines) == (0, ["no pod is pending"])


@pytest.mark.asyncio
async def test_an_extender_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], dump: str
) -> None:
    operator = Operator(monkeypatch, capsys)
    async with an_extender() as extender:
        extender.says("filter", {"NodeNames": [], "FailedNodes": {"n1": "no licence"}})
        config = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
        asked = {"urlPrefix": extender.url, "filterVerb": "filter", "nodeCacheCapable": True}
        Path(dump, "other.yaml").write_text(json.dumps({**config, "extenders": [asked]}))
        arguments = ("-f", f"{dump}/pod.yaml", "--from", dump, "--config", f"{dump}/other.yaml")
        said = await operator.types("whatif", *arguments)
        assert (said.code, said.lines[0]) == (1, "none of 1 pod would be scheduled, 1 unschedulable")
        assert said.lines[-1].startswith("shop/web unschedulable: 0/1 nodes are available: 1 no licence.")
        ((_, body),) = extender.asked
        assert (body["Pod"]["metadata"]["name"], body["NodeNames"]) == ("web", ["n1"])
