"""The compose files: docker-compose takes them, and what they start is locked in."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from shared.config.setting_sources import SOURCES
from shared.config.sources import settings_from
from tests.deploy.rendering import CORE, ROOT, SERVICES, pod_of, rendered, workloads
from tools.cli.main import main, parser

DEPLOY = ROOT / "deploy"
BASE = DEPLOY / "docker-compose.yml"
CORE_FILE = DEPLOY / "docker-compose.core.yml"
KUBECONFIG = DEPLOY / "docker-compose.kubeconfig.yml"
SCHEDULERS = {DEPLOY / "scheduler.yaml": {"default-scheduler"}, DEPLOY / "scheduler-beside.yaml": {"flotilla"}}
WITH_REDIS = frozenset({"queue", "snapshot", "core", "worker"})
COMPONENTS = (*SERVICES, "core")

Object = dict[str, Any]


def images() -> dict[str, str]:
    """The variables of deploy/.env."""
    lines = (line for line in (DEPLOY / ".env").read_text().splitlines() if line and not line.startswith("#"))
    return dict(line.split("=", 1) for line in lines)


def read(path: Path) -> Object:
    """With what `<<` merges, and the images that deploy/.env names."""
    text = re.sub(r"\$\{(\w+_IMAGE):\?.*?\}", lambda found: images()[found[1]], path.read_text())
    found: Object = yaml.safe_load(text)
    return found


def services() -> Object:
    found: Object = read(BASE)["services"]
    return found


def compose(*files: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("docker-compose")
    if program is None:
        pytest.skip("there is no docker-compose; .ci/run installs it")
    named = [word for path in files for word in ("--file", str(path))]
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **variables}
    return subprocess.run([program, *named, "config"], capture_output=True, text=True, timeout=60, env=environment)


def test_docker_compose_takes_the_file_without_a_word() -> None:
    done = compose(BASE)
    assert (done.returncode, done.stderr) == (0, "")
    assert yaml.safe_load(done.stdout)["services"].keys() == services().keys()


def test_docker_compose_takes_it_with_a_kubeconfig(tmp_path: Path) -> None:
    done = compose(BASE, KUBECONFIG, KUBECONFIG_FILE=str(tmp_path / "config"), FLOTILLA_USER="1000:1000")
    assert (done.returncode, done.stderr) == (0, "")
    found = yaml.safe_load(done.stdout)["services"]
    assert "simulator" not in found or found["simulator"]["profiles"] == ["simulator"]
    for name in COMPONENTS:
        (config,) = (each for each in found[name]["volumes"] if "scheduler" in str(each))
        assert "scheduler-beside.yaml" in str(config)
        if name != "worker":
            settings = found[name]["environment"]
            assert settings["FLOTILLA_SERVER"] == "" and found[name]["user"] == "1000:1000"
            mounted = {each["target"] for each in found[name]["volumes"] if isinstance(each, dict)}
            assert settings["FLOTILLA_KUBECONFIG"] in mounted


def test_docker_compose_takes_it_with_the_leaders_in_one_process() -> None:
    done = compose(BASE, CORE_FILE)
    assert (done.returncode, done.stderr) == (0, "")
    found = yaml.safe_load(done.stdout)["services"]
    assert all(name not in found or found[name]["profiles"] == ["apart"] for name in CORE["core"])
    core = services()["core"]
    assert core["profiles"] == ["core"] and core["command"] == ["run", *CORE["core"]]


def test_containers_are_locked_in() -> None:
    for name, service in services().items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert {"mem_limit", "pids_limit", "restart", "logging"} <= service.keys(), name
        assert "container_name" not in service, "there may be several"
        assert all(str(port).startswith("127.0.0.1:") for port in service.get("ports", [])), name


def test_images_are_of_a_version() -> None:
    for name, service in services().items():
        image, _, tag = service["image"].partition(":")
        assert image == "flotilla" or tag not in ("", "latest"), name
        assert "." not in image.partition("/")[0], "no registry is named"


def test_images_are_named_once() -> None:
    """In deploy/.env; where a tool needs them again, they are the same."""
    compose_file = BASE.read_text()
    assert set(re.findall(r"\$\{(\w+_IMAGE)", compose_file)) == set(images())
    assert set(re.findall(r"image: (\S+)", compose_file)) == {
        "flotilla:latest",
        *(f"${{{name}:?it" for name in images() if name != "PYTHON_IMAGE"),
    }
    assert f"ARG PYTHON={images()['PYTHON_IMAGE']}\n" in (DEPLOY / "Dockerfile").read_text()
    for folder in ("beside", "instead"):
        named = {
            each["image"] for found in workloads(rendered(f"overlays/{folder}")) for each in pod_of(found)["containers"]
        }
        assert named == {"flotilla:latest", images()["NATS_IMAGE"], images()["VALKEY_IMAGE"]}


def test_services_start_after_what_they_need() -> None:
    found = services()
    for name in COMPONENTS:
        assert found[name]["depends_on"] == {
            "config": {"condition": "service_completed_successfully"},
            "nats": {"condition": "service_healthy"},
            "valkey": {"condition": "service_healthy"},
        }
    for name in ("nats", "valkey", "simulator"):
        assert "test" in found[name]["healthcheck"]


def test_commands_are_understood() -> None:
    for name, service in services().items():
        if service["image"].startswith("flotilla:"):
            parser().parse_args([*service["command"]])
            assert name not in SERVICES or service["command"] == ["run", name]


def test_health_checks_are_understood() -> None:
    checks = re.findall(r"CMD (\[.*\])", (DEPLOY / "Dockerfile").read_text().partition("HEALTHCHECK")[2])
    commands = [json.loads(checks[0]), services()["simulator"]["healthcheck"]["test"][1:]]
    for program, *words in commands:
        assert program == "flotilla"
        parser().parse_args(words)


def test_settings_are_settings() -> None:
    known = {source.variable for source in SOURCES}
    known |= {f"{source.variable}_FILE" for source in SOURCES if source.secret}
    for name in COMPONENTS:
        service = services()[name]
        given = service["environment"]
        assert given.keys() <= known
        assert ("FLOTILLA_REDIS_URL_FILE" in given) == (name in WITH_REDIS)
        secrets = {Path(value).name for variable, value in given.items() if value.startswith("/run/secrets/")}
        mounted = {each if isinstance(each, str) else each["target"] for each in service["secrets"]}
        assert secrets == mounted
        sources = {each["source"] for each in service["secrets"] if isinstance(each, dict)}
        assert {source.partition("-")[0] for source in sources} == {name}, "no secret of another service"
        settings_from({key: value for key, value in given.items() if "$" not in value and not value.startswith("/")})


@pytest.mark.parametrize("path", SCHEDULERS, ids=lambda path: path.name)
def test_scheduler_configurations_are_right(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "validate", str(path)]) == 0
    assert {profile["schedulerName"] for profile in read(path)["profiles"]} == SCHEDULERS[path]


def test_prometheus_scrapes_all_services() -> None:
    (job,) = read(DEPLOY / "prometheus.yml")["scrape_configs"]
    (discovery,) = job["dns_sd_configs"]
    assert set(discovery["names"]) == set(COMPONENTS)
    image = (DEPLOY / "Dockerfile").read_text()
    assert f"FLOTILLA_HTTP_PORT={discovery['port']}" in image


def test_files_that_are_mounted_exist() -> None:
    for name, service in services().items():
        for volume in service.get("volumes", []):
            source = volume["source"] if isinstance(volume, dict) else volume.partition(":")[0]
            if source.startswith(".") and "secrets" not in source:
                assert (DEPLOY / source).exists(), name
