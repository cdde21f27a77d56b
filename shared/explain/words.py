"""Counts, lists, amounts and selectors in words."""

from collections.abc import Sequence

from shared.model.resources import PODS
from shared.model.wellknown import BETA_ZONE, HOSTNAME, REGION, ZONE

_DOMAINS = {HOSTNAME: "node", ZONE: "zone", BETA_ZONE: "zone", REGION: "region"}
SHORT = 4
"""Parts of a list that are named; the rest is counted."""
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_BYTES = ("memory", "ephemeral-storage", "hugepages-")


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def listed(parts: Sequence[str], most: int = SHORT) -> str:
    """`a, b and c`."""
    shown = list(parts[:most])
    if len(parts) > most:
        shown.append(f"{len(parts) - most:,} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}" if shown else ""


def in_spite_of(budgets: Sequence[str]) -> str:
    """What follows evictions that these PodDisruptionBudgets do not allow; empty without any."""
    plural = "s" if len(budgets) > 1 else ""
    return f", in spite of PodDisruptionBudget{plural} {listed(budgets, 3)}" if budgets else ""


def domain(key: str) -> str:
    """The label of a topology in a word, if it is a common one."""
    return _DOMAINS.get(key, key)


def amount(resource: str, value: int) -> str:
    """As in a manifest: `1.5` cpu, `2Gi` of memory. Never more than `value`, so that it can be asked for."""
    if resource == "cpu":
        return f"{value / 1000:g}"
    if not resource.startswith(_BYTES):
        return str(value)
    power = 0
    while power + 1 < len(_BINARY) and value >> (10 * (power + 1)):
        power += 1
    if not value or not value % (1 << 10 * power):
        return f"{value >> 10 * power}{_BINARY[power]}"
    while power > 1 and (value >> 10 * power) < 10:
        power -= 1
    return f"{value >> 10 * power}{_BINARY[power]}"


def sizes(allocatable: dict[str, int]) -> str:
    """`4 cpu, 16Gi memory`."""
    shown = [f"{amount(name, value)} {name}" for name, value in allocatable.items() if name != PODS and value]
    return ", ".join(shown[:SHORT]) or count(allocatable.get(PODS, 0), "pod")


def requirement(key: str, operator: str, values: Sequence[str]) -> str:
    """A condition on labels: `disk in (ssd, nvme)`."""
    match operator:
        case "In" if len(values) == 1:
            return f"{key}={values[0]}"
        case "In":
            return f"{key} in ({', '.join(values)})"
        case "NotIn":
            return f"{key} not in ({', '.join(values)})"
        case "Exists":
            return f"a label {key}"
        case "DoesNotExist":
            return f"no label {key}"
        case _:
            return f"{key} {'above' if operator == 'Gt' else 'below'} {', '.join(values)}"


def selector_text(selector: object) -> str:
    labels = getattr(selector, "match_labels", {})
    expressions = getattr(selector, "match_expressions", [])
    parts = [f"{key}={value}" for key, value in labels.items()]
    parts += [requirement(each.key, each.operator, each.values) for each in expressions]
    return ", ".join(parts) or "any pod"


def domain_counts(counts: dict[str, str]) -> str:
    """`a 1, b 3`; the emptiest first."""
    return listed([f"{name} {pods}" for name, pods in counts.items()], SHORT)
