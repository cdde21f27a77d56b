"""Check names by the rules that Kubernetes has for label keys and label values."""

import re
from typing import Final

_NAME: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_MAX_NAME: Final = 63
_MAX_SUBDOMAIN: Final = 253


def label_key_faults(key: str) -> list[str]:
    """Every reason why this is no label key: a name, or a DNS subdomain, a slash and a name."""
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        return ["has more than one '/'"]
    return [*(_prefix_faults(prefix) if slash else ()), *_name_faults(name)]


def label_value_faults(value: str) -> list[str]:
    """Every reason why this is no label value: empty, or a name."""
    return _name_faults(value) if value else []


def _prefix_faults(prefix: str) -> list[str]:
    if not prefix:
        return ["the part before '/' is empty"]
    faults = []
    if _length(prefix) > _MAX_SUBDOMAIN:
        faults.append(f"the part before '/' is longer than {_MAX_SUBDOMAIN} bytes")
    if not _SUBDOMAIN.fullmatch(prefix):
        faults.append(
            "the part before '/' is no DNS subdomain: it may hold a-z, 0-9, '-' and '.' only, "
            "and each of its labels must start and end with a letter or digit"
        )
    return faults


def _name_faults(name: str) -> list[str]:
    faults = []
    if not name:
        faults.append("the name is empty")
    elif _length(name) > _MAX_NAME:
        faults.append(f"is longer than {_MAX_NAME} bytes")
    if not _NAME.fullmatch(name):
        faults.append("may hold letters, digits, '-', '_' and '.' only, and must start and end with a letter or digit")
    return faults


def _length(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
