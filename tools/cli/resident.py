"""How much memory processes hold."""

from collections.abc import Mapping

import psutil

MIB = 1 << 20


def resident(processes: Mapping[str, int]) -> dict[str, int]:
    """Bytes by name, of those that are still there. `processes`: pids by name."""
    found: dict[str, int] = {}
    for name, pid in processes.items():
        try:
            found[name] = psutil.Process(pid).memory_info().rss
        except psutil.Error:
            continue  # gone: the next of its name is looked at another time
    return found
