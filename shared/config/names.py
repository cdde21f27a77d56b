"""The rules for names that Kubernetes lets one write: label keys, label values, extended resources."""

import re
from typing import Final

_NAME: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_MAX_NAME: Final = 63
_MAX_SUBDOMAIN: Final = 253
_NATIVE: Final = "kubernetes.io/"
_QUOTA_PREFIX: Final = "requests."


def label_key_faults(key: str) -> list[str]:
    """Every reason why this is no label key: a name, or a DNS subdomain, a slash and a name."""
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        return ["has more than one '/'"]
    return [*(_prefix_faults(prefix) if slash else ()), *_name_faults(name)]


def label_key_fault(key: str) -> str | None:
    """Why this is no label key, or None if it is one."""
    return "; ".join(label_key_faults(key)) or None


def label_value_fault(value: str) -> str | None:
    """Why this is no label value, or None if it is one; the empty text is."""
    return "; ".join(_name_faults(value)) or None if value else None


def is_extended_resource(name: str) -> bool:
    """Whether a qualified name is that of a resource which is not Kubernetes' own."""
    native = "/" not in name or _NATIVE in name
    return not native and not name.startswith(_QUOTA_PREFIX) and not label_key_faults(_QUOTA_PREFIX + name)


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
