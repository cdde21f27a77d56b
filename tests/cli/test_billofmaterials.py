"""flotilla version --sbom: the installed packages in CycloneDX format."""

import json
import re
from importlib.metadata import distributions, version

import pytest
from packaging.markers import Marker

from tests.deploy.rendering import ROOT
from tools.cli.main import main


def pinned_for_this_python() -> dict[str, str]:
    lines = re.findall(r"^([\w.-]+)==(\S+)(?: ; ([^\\\n]+))?", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    return {name: pinned for name, pinned, marker in lines if not marker or Marker(marker).evaluate()}


def test_the_bill_of_materials_names_every_package_with_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(("version", "--sbom")) == 0
    printed = capsys.readouterr().out
    document = json.loads(printed)
    assert (document["bomFormat"], document["specVersion"], document["version"]) == ("CycloneDX", "1.5", 1)
    assert document["metadata"]["component"] == {
        "type": "application",
        "bom-ref": "flotilla",
        "name": "flotilla",
        "version": version("flotilla"),
        "licenses": [{"expression": "Apache-2.0"}],
    }
    found = {each["name"]: each["version"] for each in document["components"]}
    assert (
        len(found)
        == len(document["components"])
        == len({each.metadata["Name"].lower() for each in distributions()}) - 1
    )
    pinned = pinned_for_this_python()
    assert {re.sub(r"[-_.]+", "-", name).lower() for name in pinned} <= found.keys()
    assert {each["purl"] for each in document["components"]} >= {f"pkg:pypi/nats-py@{pinned['nats-py']}"}
    assert [each["name"] for each in document["components"]] == sorted(found)
    assert main(("version", "--sbom")) == 0
    assert capsys.readouterr().out == printed
