"""Plugins of installed packages: found by name, made when named, and an error says whose fault it is."""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shared.config.points import ExtensionPoint
from shared.errors import UserError
from shared.framework.loading import Registry, load_frameworks
from shared.framework.profile import Framework
from shared.plugins.registry import in_tree
from shared.plugins.single_node import NodeName
from tools.cli.main import main

GOOD = """
from flotilla.plugin import PerNodeFilter
from flotilla.plugin import PermitPlugin
from flotilla.results import Permission
from flotilla.results import SUCCESS

class Own(PerNodeFilter, PermitPlugin):
    name = "Own"
    def __init__(self, args):
        self.args = args
    def filter_node(self, state, node):
        return SUCCESS
    def permit(self, state, node):
        return Permission()

class Plain(PermitPlugin):
    name = "Plain"
    def permit(self, state, node):
        return Permission()
"""

Installs = Callable[..., None]


@pytest.fixture
def installs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Installs]:
    """Makes an installed package of a module: its code, and its entry points by name."""
    made: list[str] = []

    def install(code: str, *, package: str = "acme", **entries: str) -> None:
        (tmp_path / f"{package}.py").write_text(code)
        info = tmp_path / f"{package}-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
        lines = [f"{name} = {value}" for name, value in entries.items()]
        (info / "entry_points.txt").write_text("[flotilla.plugins]\n" + "\n".join(lines) + "\n")
        made.append(package)
        importlib.invalidate_caches()

    monkeypatch.syspath_prepend(str(tmp_path))
    yield install
    for package in made:
        sys.modules.pop(package, None)


def config(*plugins: str, **args: object) -> dict[str, object]:
    enabled = {"enabled": [{"name": name} for name in plugins]}
    plugin_config = [{"name": name, "args": value} for name, value in args.items()]
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"multiPoint": enabled}, "pluginConfig": plugin_config}],
    }


def framework(*plugins: str, **args: object) -> Framework:
    return load_frameworks(config(*plugins, **args))["default-scheduler"]


def names(plugins: list[Any]) -> list[str]:
    return [plugin.name for plugin in plugins]


def test_a_plugin_runs_at_the_points_that_it_derives_from(installs: Installs) -> None:
    installs(GOOD, Own="acme:Own")
    assert list(Registry(in_tree()).points_of("Own")) == [ExtensionPoint.FILTER, ExtensionPoint.PERMIT]
    made = framework("Own")
    assert names(made.permit) == ["Own"]
    assert "Own" in names(made.filter)
    assert "Own" not in names(made.score)


def test_arguments_reach_it_as_a_map(installs: Installs) -> None:
    installs(GOOD, Own="acme:Own")
    (plugin,) = framework("Own", Own={"most": 3, "of": ["a"]}).permit
    assert getattr(plugin, "args", None) == {"most": 3, "of": ["a"]}
    (plugin,) = framework("Own").permit
    assert getattr(plugin, "args", None) == {}


def test_a_package_is_not_imported_before_a_plugin_of_it_is_named(installs: Installs) -> None:
    installs("raise RuntimeError('imported')", Broken="acme:Broken")
    assert framework().permit == []
    assert "acme" not in sys.modules


def test_names_in_tree_stay_what_they_are(installs: Installs) -> None:
    installs("raise RuntimeError('imported')", NodeName="acme:NodeName")
    found = next(plugin for plugin in framework().filter if plugin.name == "NodeName")
    assert type(found) is NodeName


def test_all_names_are_listed_once(installs: Installs) -> None:
    installs(GOOD, Own="acme:Own", NodeName="acme:Own")
    registry = Registry(in_tree())
    assert sorted(registry) == sorted({*in_tree(), "Own"})
    assert len(registry) == len(in_tree()) + 1
    assert "Nobody" not in registry


@pytest.mark.parametrize(
    ("code", "value", "reason"),
    [
        ("import nothing_of_this_name", "acme:P", "acme:P cannot be imported: ModuleNotFoundError: No module named"),
        ("1 / 0", "acme:P", "acme:P cannot be imported: ZeroDivisionError: division by zero"),
        ("", "acme:P", "acme:P cannot be imported: AttributeError"),
        ("P = 3", "acme:P", "acme:P is no class that derives from Plugin"),
        ("def P(args): ...", "acme:P", "acme:P is no class that derives from Plugin"),
        (GOOD, "acme:Own", "acme:Own calls itself 'Own'"),
        (
            "from flotilla.plugin import PermitPlugin\nclass P(PermitPlugin):\n    name = 'P'",
            "acme:P",
            "acme:P has no permit",
        ),
        (
            "from flotilla.plugin import Plugin\nclass P(Plugin):\n    name = 'P'",
            "acme:P",
            "acme:P derives from no extension point",
        ),
        (
            "from flotilla.plugin import PreEnqueuePlugin\n"
            "class P(PreEnqueuePlugin):\n    name = 'P'\n    api_version = (2, 0)",
            "acme:P",
            "acme:P needs version 2.0 of flotilla.plugin, this is 1.1",
        ),
        (
            "from flotilla.plugin import PreEnqueuePlugin\n"
            "class P(PreEnqueuePlugin):\n    name = 'P'\n    api_version = (1, 7)",
            "acme:P",
            "acme:P needs version 1.7 of flotilla.plugin, this is 1.1",
        ),
    ],
)
def test_whose_fault_it_is_is_told_on_one_line(installs: Installs, code: str, value: str, reason: str) -> None:
    installs(code, P=value)
    with pytest.raises(UserError) as wrong:
        framework("P")
    told = str(wrong.value)
    assert told.startswith(f"plugin 'P' of acme 1.2: {reason}")
    assert "\n" not in told


MAKES_TROUBLE = """
from shared.errors import UserError
from flotilla.plugin import PermitPlugin
from flotilla.results import Permission

class P(PermitPlugin):
    name = "P"
    def __init__(self, args):
        if args.get("user"):
            raise UserError("user: must be nobody")
        raise KeyError("x")
    def permit(self, state, node):
        return Permission()
"""


def test_a_plugin_that_cannot_be_made_is_told(installs: Installs) -> None:
    installs(MAKES_TROUBLE, P="acme:P")
    with pytest.raises(UserError, match=r"^plugin 'P' of acme 1\.2: cannot be made: KeyError: 'x'$"):
        framework("P")
    with pytest.raises(UserError, match=r"^plugin 'P' of acme 1\.2: user: must be nobody$"):
        framework("P", P={"user": 1})


@pytest.mark.parametrize("command", [["config", "validate"], ["run", "cycle", "--config"], ["up", "--config"]])
def test_what_a_plugin_refuses_is_told_before_anything_starts(
    installs: Installs, command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    installs(MAKES_TROUBLE, P="acme:P")
    file = tmp_path / "scheduler.json"
    file.write_bytes(msgspec.json.encode(config("P", P={"user": 1})))
    assert main([*command, str(file)]) == 2
    who = str(file) if command[0] == "config" else "flotilla"
    assert capsys.readouterr() == ("", f"{who}: plugin 'P' of acme 1.2: user: must be nobody\n")


def test_arguments_that_no_plugin_takes_are_reported(installs: Installs) -> None:
    installs(GOOD, Plain="acme:Plain")
    assert names(framework("Plain").permit) == ["Plain"]
    with pytest.raises(UserError, match=r"^plugin 'Plain' of acme 1\.2: it takes no arguments, and was given most$"):
        framework("Plain", Plain={"most": 1})


def test_two_packages_with_one_name(installs: Installs) -> None:
    installs(GOOD, Own="acme:Own")
    installs(GOOD, package="other", Own="other:Own")
    assert framework().permit == []
    with pytest.raises(UserError, match="another plugin of this name comes with"):
        framework("Own")


def test_a_name_that_no_plugin_has_is_reported_by_the_configuration() -> None:
    with pytest.raises(UserError, match="Stranger"):
        framework("Stranger")
