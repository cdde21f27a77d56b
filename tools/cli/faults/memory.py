"""What processes hold, before and after."""

from collections.abc import Mapping

from tools.cli.faults.checking import Check
from tools.cli.resident import MIB

ALLOWED_SHARE, ALLOWED_MIB = 0.25, 16
"""What a process may have grown by."""


def grown(before: Mapping[str, int], after: Mapping[str, int]) -> Check:
    broken: list[str] = []
    for name, bytes_before in before.items():
        bytes_after = after.get(name)
        if bytes_after is None:
            broken.append(f"{name} does not run any more")
        elif bytes_after > bytes_before * (1 + ALLOWED_SHARE) + ALLOWED_MIB * MIB:
            broken.append(f"{name} had {_mib(bytes_before)}, and has {_mib(bytes_after)}")
    count = f"{_mib(sum(before.values()))} before, {_mib(sum(after.values()))} after"
    return Check("the memory of each process is back where it was", count, broken)


def table(before: Mapping[str, int], after: Mapping[str, int]) -> list[str]:
    return [f"{name:<16} {_mib(before[name]):>10} {_mib(after.get(name, 0)):>10}" for name in before]


def _mib(count: int) -> str:
    return f"{count / MIB:,.0f} MiB"
