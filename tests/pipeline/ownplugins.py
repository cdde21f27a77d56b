"""Plugins that are not Flotilla's own, installed as any package is, for pipelines that are told to use them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shared.config.settings import Settings

PLUGINS = """
from flotilla.results import SUCCESS, Code, Permission, Status
from flotilla.plugin import PermitPlugin, ReservePlugin


class ByHand(PermitPlugin):
    name = "ByHand"

    def permit(self, state, node):
        waits = "by-hand" in state.pod.metadata.labels
        return Permission(Status(Code.WAIT), 60.0) if waits else Permission()


class Stumbling(ReservePlugin):
    name = "Stumbling"

    def reserve(self, state, node):
        stumbles = "stumbling" in state.pod.metadata.labels
        return Status(Code.ERROR, ("stumbled",)) if stumbles else SUCCESS

    def unreserve(self, state, node):
        pass
"""
BY_HAND = {"by-hand": ""}
"""Labels of a pod that waits for a permit."""
STUMBLING = {"stumbling": ""}
"""Labels of a pod whose every attempt ends in an error."""
CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
podInitialBackoffSeconds: {rest}
profiles:
- plugins:
    permit: {{enabled: [{{name: ByHand}}]}}
    reserve: {{enabled: [{{name: Stumbling}}]}}
"""


@contextmanager
def own_plugins(folder: Path, *, rest: int = 1) -> Iterator[Settings]:
    """For pipelines that are started inside. `rest`: seconds after a first failure."""
    (folder / "config.yaml").write_text(CONFIG.format(rest=rest))
    site = folder / "site"
    about = site / "own_plugins-1.0.dist-info"
    about.mkdir(parents=True)
    (site / "own_plugins.py").write_text(PLUGINS)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: own-plugins\nVersion: 1.0\n")
    points = (f"{name} = own_plugins:{name}\n" for name in ("ByHand", "Stumbling"))
    (about / "entry_points.txt").write_text("".join(("[flotilla.plugins]\n", *points)))
    with pytest.MonkeyPatch.context() as patch:
        path = filter(None, [str(site), os.environ.get("PYTHONPATH")])
        patch.setenv("PYTHONPATH", os.pathsep.join(path))
        yield Settings(config=str(folder / "config.yaml"))
