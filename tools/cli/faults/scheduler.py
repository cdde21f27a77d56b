"""How the services of a fault run are configured: short Leases, and a plugin that has some pods wait for a permit.

The plugin comes in as any out-of-tree plugin does: by an installed package, which here is a folder on the path.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PERMIT_PLUGIN = "FaultsPermit"
PERMIT_PATIENCE = 5.0
"""Seconds until a wait for a permit ends as rejected; the pod is tried again."""
LEASE, RENEW, RETRY = 8, 6, 1
"""Seconds: a pause of ten makes a leader lose its Lease to its standby."""
_PLUGIN = f'''
from flotilla.results import Code, Permission, Status
from shared.framework.plugin import PermitPlugin, PodParts


class {PERMIT_PLUGIN}(PermitPlugin):
    name = "{PERMIT_PLUGIN}"
    reads_of_pod = PodParts.TEMPLATE

    def permit(self, state, node):
        waits = state.pod.name.startswith("permitted-")
        return Permission(Status(Code.WAIT), {PERMIT_PATIENCE}) if waits else Permission()
'''
_CONFIG = f"""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {{leaderElect: true, leaseDuration: {LEASE}s, renewDeadline: {RENEW}s, retryPeriod: {RETRY}s}}
profiles:
- plugins:
    permit: {{enabled: [{{name: {PERMIT_PLUGIN}}}]}}
"""


@contextmanager
def configured(folder: Path) -> Iterator[Path]:
    """The configuration file, for services that are started inside."""
    site = folder / "site"
    about = site / "flotilla_faults-1.0.dist-info"
    about.mkdir(parents=True)
    (site / "flotilla_faults.py").write_text(_PLUGIN)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: flotilla-faults\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[flotilla.plugins]\n{PERMIT_PLUGIN} = flotilla_faults:{PERMIT_PLUGIN}\n")
    config = folder / "faults.yaml"
    config.write_text(_CONFIG)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(site), before]))
    try:
        yield config
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
