"""kubectl flotilla: a plugin that the real kubectl finds, runs and completes."""

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from tests.bus.support import PREFIX
from tests.cli.exec_server import with_a_container
from tests.cli.test_queue import a_queue, some_pods
from tests.deploy.rendering import ROOT
from tests.kube.support import api_server
from tests.servers import nats_server
from tools.api_objects import ObjectWriter
from tools.cli.kubectl import OFFERED, completions, in_cluster, parser, runs_here

LABELS = {"app.kubernetes.io/name": "flotilla", "app.kubernetes.io/component": "cli"}
SCRIPTS = Path(sys.executable).parent
needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl; .ci/run installs it")


async def kubectl(*words: str, typed: str = "", **variables: str) -> tuple[int, str, str]:
    path = os.pathsep.join([str(SCRIPTS), os.environ["PATH"]])
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("FLOTILLA_")}
    environment = inherited | {"PATH": path, "KUBECONFIG": "/nonexistent", **variables}
    process = await asyncio.create_subprocess_exec(
        "kubectl", *words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    out, err = await asyncio.wait_for(process.communicate(typed.encode()), 60)
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


@needs_kubectl
@pytest.mark.asyncio
async def test_kubectl_finds_it_and_shows_its_help() -> None:
    code, out, _ = await kubectl("plugin", "list")
    assert code == 0
    assert str(SCRIPTS / "kubectl-flotilla") in out
    code, out, _ = await kubectl("flotilla", "--help")
    assert code == 0
    assert all(f"{name}: " in " ".join(out.split()) for name in OFFERED)
    code, out, _ = await kubectl("flotilla", "queue", "--help")
    assert (code, out.split()[:4]) == (0, ["usage:", "kubectl", "flotilla", "queue"])


@needs_kubectl
@pytest.mark.asyncio
async def test_it_asks_the_pipeline_that_the_environment_names() -> None:
    async with nats_server() as server, a_queue(server, some_pods()):
        reached = {"FLOTILLA_NATS_URL": server.url, "FLOTILLA_PREFIX": PREFIX}
        code, out, err = await kubectl("flotilla", "queue", **reached)
        assert (code, err) == (0, "")
        assert out.splitlines()[0] == "queue: 1 unschedulable, 1 active"
        code, _, err = await kubectl("flotilla", "queue", "--state", "lost", **reached)
        assert (code, "--state" in err) == (2, True)


@needs_kubectl
@pytest.mark.asyncio
async def test_without_nats_kubectl_execs_into_the_cluster() -> None:
    code, out, err = await kubectl("flotilla", "--context", "nowhere", "queue")
    assert (code, out) == (1, "")
    assert "nowhere" in err, "kubectl's own complaint about the context"


@needs_kubectl
@pytest.mark.asyncio
async def test_in_the_cluster_its_output_input_and_exit_code_are_those_of_the_command(tmp_path: Path) -> None:
    async with nats_server() as server, a_queue(server, some_pods()), api_server() as simulator:
        variables = {"FLOTILLA_NATS_URL": server.url, "FLOTILLA_PREFIX": PREFIX}
        async with with_a_container(simulator.url, variables) as url:
            config = kubeconfig(tmp_path, url)
            made = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "cli-1", "namespace": "flotilla-system", "labels": LABELS},
                "spec": {"nodeName": "n1", "containers": [{"name": "cli", "image": "flotilla"}]},
                "status": {"phase": "Running"},
            }
            writer = ObjectWriter(simulator.url)
            await writer.create("/api/v1/namespaces", [{"metadata": {"name": "flotilla-system"}}])
            (deployment,) = yaml.safe_load_all((ROOT / "k8s" / "cli" / "cli.yaml").read_text())
            await writer.create("/apis/apps/v1/namespaces/flotilla-system/deployments", [deployment])
            await writer.create("/api/v1/namespaces/flotilla-system/pods", [made])
            code, out, err = await kubectl("flotilla", "queue", KUBECONFIG=config)
            assert (code, out.splitlines()[:1], err) == (0, ["queue: 1 unschedulable, 1 active"], "")
            code, _, err = await kubectl("flotilla", "queue", "--state", "lost", KUBECONFIG=config)
            assert (code, "--state" in err) == (2, True)
            code, _, err = await kubectl("flotilla", "capacity", "-f", "-", KUBECONFIG=config, typed="kind: [")
            assert (code, "-: document 1" in err) == (2, True)


def kubeconfig(folder: Path, url: str) -> str:
    made = {
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "contexts": [{"name": "c", "context": {"cluster": "c"}}],
        "current-context": "c",
    }
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(made))
    return str(file)


@needs_kubectl
@pytest.mark.asyncio
async def test_kubectl_completes_it() -> None:
    code, out, _ = await kubectl("__complete", "flotilla", "ev")
    assert (code, out.splitlines()[0].split("\t")[0]) == (0, "evictions")
    _, out, _ = await kubectl("__complete", "flotilla", "queue", "--group-by", "")
    assert out.splitlines()[:3] == ["reason", "namespace", "owner"]


def test_completions() -> None:
    assert {each.partition("\t")[0] for each in completions([""])} == {*OFFERED}
    assert [each.partition("\t")[0] for each in completions(["queue", "--wa"])] == ["--watch"]
    assert list(completions(["queue", "-o", "w"])) == ["wide"]
    assert list(completions(["nothing", "x"])) == []


def test_where_a_command_runs() -> None:
    assert runs_here(["queue", "--nats", "nats://h"], {})
    assert runs_here(["queue", "--nats=nats://h"], {})
    assert runs_here(["queue"], {"FLOTILLA_NATS_URL_FILE": "/run/secrets/nats-url"})
    assert runs_here(["queue", "--help"], {})
    assert not runs_here(["queue", "-n", "shop"], {"FLOTILLA_NATS_URL": ""})


def test_what_kubectl_runs_in_the_cluster() -> None:
    plain = parser().parse_args(["queue", "-n", "shop", "--watch"])
    asked = ["flotilla", "queue", "-n", "shop", "--watch"]
    where = ["exec", "--namespace", "flotilla-system"]
    assert in_cluster(plain, on_terminal=False) == [*where, "deployment/flotilla-cli", "--", *asked]
    assert in_cluster(plain, on_terminal=True) == [
        *where, "--stdin", "--tty", "deployment/flotilla-cli", "--", *asked
    ]  # fmt: skip
    given = ["--context", "prod", "--system-namespace", "own", "whatif", "-f", "-"]
    assert in_cluster(parser().parse_args(given), on_terminal=False) == [
        "--context", "prod", "exec", "--namespace", "own", "--stdin", "deployment/flotilla-cli", "--",
        "flotilla", "whatif", "-f", "-",
    ]  # fmt: skip
