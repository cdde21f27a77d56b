"""The rules for names that Kubernetes lets one write: label keys and label values."""

import re
from typing import Final

_NAME: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_MAX_NAME: Final = 63
_MAX_SUBDOMAIN: Final = 253


def label_key_fault(key: str) -> str | None:
    """Why this is no label key (a name, or a DNS subdomain, a slash and a name), or None if it is one."""
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        return "has more than one '/'"
    if slash and (len(prefix) > _MAX_SUBDOMAIN or not _SUBDOMAIN.fullmatch(prefix)):
        return "the part before '/' is not a DNS subdomain"
    if not name:
        return "the name is empty"
    return _name_fault(name)


def label_value_fault(value: str) -> str | None:
    """Why this is no label value, or None if it is one; the empty text is."""
    return _name_fault(value) if value else None


def _name_fault(name: str) -> str | None:
    if len(name) > _MAX_NAME:
        return f"is longer than {_MAX_NAME} characters"
    if not _NAME.fullmatch(name):
        return "may hold letters, digits, '-', '_' and '.' only, and must start and end with a letter or digit"
    return None
