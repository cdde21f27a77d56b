"""flotilla bench-pipeline: its cases and its table, and small ones from start to end."""

import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

import services.cycle
from testing.inprocess.workloads import NAMESPACE, Object
from testing.simulator.service import Simulator
from tests.cli.commands import flotilla
from tests.kube.support import api_server
from tests.supervisor.waiting import alive
from tools.api_objects import ObjectWriter
from tools.bench.pipeline import cases
from tools.bench.pipeline.cases import Case, Figures
from tools.bench.pipeline.confirming import CONFIRM_AFTER, Confirmations
from tools.bench.pipeline.measurement import PODS
from tools.cli.main import main
from tools.cli.processes import MIB

SMALL = (
    "bench-pipeline",
    "--nodes",
    "50",
    "--pods",
    "200",
    "--strict-pods",
    "120",
    "--classes",
    "5",
    "--workloads",
    "plain",
)
CASE = Case(api_calls=True, round_size=256, classes=50, nodes=5_000, pods=10_000)
CPU = {"watcher": 0.1, "cycle": 0.2, "worker-0": 0.1, "worker-1": 0.3, "nats-server": 0.05, "simulator": 1.0}


def figures(seconds: float = 2.0, bound_seconds: float | None = 4.0, early_rate: float | None = None) -> Figures:
    return Figures(
        decided=1_100,
        pods=1_000,
        seconds=seconds,
        bound_seconds=bound_seconds,
        cpu=CPU,
        asks=0.01,
        loading=12.3,
        loading_cpu={"queue": 3.21, "simulator": 10.0},
        early_rate=early_rate,
        own_cpu=0.02,
        memory={"queue": 90 * MIB, "worker-0": 1_500 * MIB},
        total_memory=1_580 * MIB,
    )


def cells(line: str) -> dict[str, str]:
    """By column."""
    values = line.split()
    assert len(values) == len(cases.COLUMNS), line
    return dict(zip((title for title, _ in cases.COLUMNS), values, strict=True))


def rows(lines: Sequence[str]) -> list[dict[str, str]]:
    """The rows below the heading, without progress lines."""
    below = lines[list(lines).index(cases.heading()) + 1 :]
    return [cells(line) for line in below if line.split()[1:2] in (["yes"], ["no"])]


def cpu_of(pod: Object) -> str:
    cpu: str = pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]
    return cpu


def test_pods_cycle_through_all_classes() -> None:
    specs = [str(pod["spec"]) for pod in CASE.make_pods()]
    assert len(specs) == 10_000
    assert len(set(specs)) == 50
    assert specs[:50] == specs[50:100]
    assert len(list(CASE.make_nodes())) == 5_000


def test_preemptors_need_half_of_a_node_that_others_fill() -> None:
    case = Case(api_calls=True, round_size=256, classes=2, nodes=3, pods=3, workload="preemption")
    cases.check(case)
    fillers, pods = list(case.make_fillers()), list(case.make_pods())
    assert sorted(pod["spec"]["nodeName"] for pod in fillers) == sorted(4 * [f"node-{i:06}" for i in range(3)])
    assert {cpu_of(pod) for pod in fillers} == {"1000m"}
    assert [cpu_of(pod) for pod in pods] == ["2000m", "1999m", "2000m"]
    urgent = [obj["metadata"]["name"] for path, obj in case.make_objects() if path.endswith("/priorityclasses")]
    assert {pod["spec"]["priorityClassName"] for pod in pods} == {*urgent}


def test_gangs_that_preempt_are_whole() -> None:
    case = Case(api_calls=True, round_size=256, classes=1, nodes=128, pods=128, workload="preempting-gangs")
    cases.check(case)
    made = {obj["metadata"]["name"]: obj["spec"] for path, obj in case.make_objects() if path.endswith("/podgroups")}
    members = Counter(pod["spec"]["schedulingGroup"]["podGroupName"] for pod in case.make_pods())
    assert members == {name: spec["schedulingPolicy"]["gang"]["minCount"] for name, spec in made.items()}
    assert len(made) == 2


def test_costs_are_per_pod_and_kind_of_process() -> None:
    row = cells(cases.row(CASE, figures()))
    assert (row["calls"], row["round"], row["classes"], row["pods"]) == ("yes", "256", "50", "1000")
    assert (row["seconds"], row["decided/s"], row["bound/s"]) == ("2.00", "500", "250")
    assert (row["watcher"], row["workers"], row["nats"], row["queue"]) == ("100", "400", "50", "0")
    assert (row["total"], row["simulator"]) == ("750", "1000")


def test_notes_name_the_cost_of_loading_and_the_memory_of_each_process() -> None:
    assert [*cases.notes(figures())] == [
        "  loaded in 12 s; CPU s: queue 3.2, simulator 10.0",
        "  MB, at most: queue 90, worker-0 1,500; all at once 1,580",
    ]


def test_a_note_names_the_rate_before_decided_pods_were_bound_in_bulk() -> None:
    *_, note = cases.notes(figures(early_rate=4_321.0))
    assert note == (
        "  until the first decisions were confirmed, after 15 s: 4321 decided/s; "
        "the benchmark itself: 20 µs of CPU per pod"
    )


@pytest.mark.asyncio
async def test_decided_pods_are_bound_after_a_while_without_api_calls() -> None:
    async with api_server() as simulator:
        writer, confirmations = ObjectWriter(simulator.url), Confirmations(simulator.url)
        await writer.create("/api/v1/namespaces", [{"metadata": {"name": NAMESPACE}}])
        await writer.create_in_bulk(PODS, [plain_pod(f"pod-{i}") for i in range(3)])
        confirmations.add("pod-0", "node-a", 10.0)
        confirmations.add("pod-1", "node-b", 11.0)
        await confirmations.confirm(9.9 + CONFIRM_AFTER)
        assert (confirmations.began, nodes_of(simulator)) == (None, {"pod-0": None, "pod-1": None, "pod-2": None})
        await confirmations.confirm(10.0 + CONFIRM_AFTER)
        assert nodes_of(simulator) == {"pod-0": "node-a", "pod-1": None, "pod-2": None}
        await confirmations.confirm(30.0 + CONFIRM_AFTER)
        assert nodes_of(simulator) == {"pod-0": "node-a", "pod-1": "node-b", "pod-2": None}
        assert confirmations.began == 10.0 + CONFIRM_AFTER


def plain_pod(name: str) -> Object:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}


def nodes_of(simulator: Simulator) -> dict[str, str | None]:
    pods = (simulator.stored("pods", f"pod-{i}", NAMESPACE) for i in range(3))
    return {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in pods}


def test_without_api_calls_nothing_is_bound() -> None:
    case = Case(api_calls=False, round_size=1, classes=1, nodes=1, pods=10)
    row = cells(cases.row(case, figures(bound_seconds=None)))
    assert (row["calls"], row["round"], row["bound/s"]) == ("no", "strict", "-")


def test_several_runs_are_summarised_by_minimum_median_and_maximum() -> None:
    line = cases.spread([figures(seconds) for seconds in (1.0, 4.0, 2.0)])
    assert line == (
        "  min / median / max of 3: 250 / 500 / 1000 decided/s, 250 / 250 / 250 bound/s, 750 / 750 / 750 µs in total"
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--modes", "neither"], "argument --modes: must be any of with, without, not 'neither'"),
        (["--rounds", "0"], "argument --rounds: must be at least 1, not 0"),
        (["--nodes", "10"], "flotilla: --pods: must be at most 400 for 1 classes on 10 nodes, not 10000"),
        (["--pods", "1000"], "flotilla: --pods: must be at least 4096 for 1 classes in rounds of 1024, not 1000"),
        (["--strict-pods", "99"], "flotilla: --strict-pods: must be at least 100 for 50 classes in rounds of 1"),
        (["--workloads", "preemption"], "flotilla: --modes: preemption needs API calls (`with`)"),
        (
            ["--workloads", "preemption", "--modes", "with", "--nodes", "9"],
            "flotilla: --pods: must be at most 9, as many as nodes, not 10000",
        ),
        (
            ["--workloads", "preempting-gangs", "--modes", "with", "--pods", "100"],
            "flotilla: --pods: must be a multiple of 64, the size of the gangs, not 100",
        ),
        (["--workloads", "preemption", "--rate", "5"], "flotilla: --workloads: preemption cannot be combined with"),
        (["--profile", "nats"], "argument --profile: invalid choice: 'nats'"),
        (["--profile", "cycle", "--repeat", "2"], "flotilla: --profile: cannot be combined with --repeat"),
        (["--workers", "65"], "flotilla: 65 workers cannot share 64 shards"),
    ],
)
def test_usage_errors_are_one_line(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(["bench-pipeline", *arguments])
    except SystemExit as end:
        code = int(end.code or 0)
    assert code == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.asyncio
async def test_with_api_calls_all_pods_are_decided_and_bound(tmp_path: Path) -> None:
    async with flotilla(tmp_path, *SMALL, "--modes", "with", "--rounds", "16") as command:
        code = await command.ends()
        text = "\n".join(command.lines)
        assert code == 0, text
        assert "CPUs, " in text and ", NATS 2." in text and ", Redis " in text
        assert "INFO" not in text
        [row] = rows(command.lines)
        assert (row["calls"], row["round"], row["classes"]) == ("yes", "16", "5")
        assert 100 < int(row["pods"]) < 200
        assert float(row["bound/s"]) > 0 < float(row["decided/s"])
        assert 0 < float(row["asks/pod"]) < 1
        assert int(row["total"]) > 0 < int(row["simulator"])
        assert list(tmp_path.iterdir()) == []


@pytest.mark.asyncio
async def test_without_api_calls_all_pods_are_decided_and_a_service_is_profiled(tmp_path: Path) -> None:
    async with flotilla(tmp_path, *SMALL, "--modes", "without", "--rounds", "1", "--profile", "cycle") as command:
        code = await command.ends()
        text = "\n".join(command.lines)
        assert code == 0, text
        [row] = rows(command.lines)
        assert (row["calls"], row["round"], row["bound/s"]) == ("no", "strict", "-")
        assert 60 < int(row["pods"]) < 120
        assert float(row["asks/pod"]) > 0
        assert int(row["cycle"]) > 0
        assert "Ordered by: internal time" in text
        of_cycle = {module.name for module in Path(services.cycle.__path__[0]).rglob("*.py")}
        assert any(f"{name}:" in text for name in of_cycle), text
        assert list(tmp_path.iterdir()) == []


@pytest.mark.asyncio
async def test_without_api_calls_pods_with_devices_count_as_bound(tmp_path: Path) -> None:
    """A binding that fails ends the benchmark; PreBind, which reads claims from the API server, would."""
    devices = ("--workloads", "devices-template", "--modes", "without", "--rounds", "16")
    async with flotilla(tmp_path, *SMALL, *devices) as command:
        assert await command.ends() == 0, "\n".join(command.lines)


@pytest.mark.asyncio
async def test_ctrl_c_cleans_up(tmp_path: Path) -> None:
    async with flotilla(tmp_path, *SMALL, "--rounds", "16") as command:
        await command.prints(lambda line: "created" in line)
        family = command.family()
        command.process.send_signal(signal.SIGINT)
        assert await command.ends() == 130
        assert list(tmp_path.iterdir()) == []
        assert not [process for process in family if alive(process.pid)]
