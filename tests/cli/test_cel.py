"""flotilla cel: what it prints about expressions and devices, and its exit codes."""

from pathlib import Path

import pytest

from tools.cli.main import main

DEVICE = """\
driver: gpu.example.com
attributes:
  model: {string: big}
capacity:
  memory: {value: 40Gi}
"""
SLICES = """\
kind: List
items:
- spec:
    driver: gpu.example.com
    pool: {name: node-1}
    devices:
    - {name: gpu-0, attributes: {model: {string: big}}}
    - {name: gpu-1}
"""
BIG = "device.attributes['gpu.example.com'].model == 'big'"


@pytest.fixture
def device(tmp_path: Path) -> str:
    path = tmp_path / "device.yaml"
    path.write_text(DEVICE)
    return str(path)


def test_a_device_that_matches(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cel", BIG, "--device", device]) == 0
    assert capsys.readouterr().out == "true\ncost: 5\nestimate: 5\n"


def test_a_device_that_does_not_match(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cel", f"!({BIG})", "--device", device]) == 1
    assert capsys.readouterr().out == "false\ncost: 6\nestimate: 6\n"


def test_an_error_at_run_time(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cel", "device.attributes['gpu.example.com'].nope", "--device", device]) == 1
    assert capsys.readouterr().out == "error: no such key: nope\ncost: 4\nestimate: 4\n"


def test_an_error_at_compile_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cel", "device.nope"]) == 1
    assert "ERROR: <input>:1:7: undefined field 'nope'" in capsys.readouterr().out


def test_an_estimate_that_the_api_server_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cel", "type(1) == int"]) == 0
    assert capsys.readouterr().out == (
        "estimate: 1844674407370955266 (the API server accepts at most 1000000 in new objects)\n"
    )


def test_each_device_of_a_resource_slice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "slices.yaml"
    path.write_text(SLICES)
    assert main(["cel", BIG, "--device", str(path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "gpu.example.com/node-1/gpu-0: true (cost 5)",
        "gpu.example.com/node-1/gpu-1: error: no such key: model (cost 5)",
        "estimate: 5",
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[1]", "is neither a device with a driver nor a ResourceSlice"),
        ("attributes: {}", "is neither a device with a driver nor a ResourceSlice"),
        ("a: [", "while parsing"),
        ("driver: d\nattributes: {a: {version: x}}", "attribute a: parse semantic version"),
        ("driver: d\ncapacity: {a: 5}", "capacity.a: Expected `object`"),
    ],
)
def test_an_unreadable_file(text: str, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "device.yaml"
    path.write_text(text)
    assert main(["cel", "true", "--device", str(path)]) == 2
    assert complaint in capsys.readouterr().err


def test_a_missing_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cel", "true", "--device", "/no/such"]) == 2
    assert "cannot read /no/such: No such file or directory" in capsys.readouterr().err
