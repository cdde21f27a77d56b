"""The documents of a text: what a question consists of, before anything is made of it."""

import re

from shared.config.document import DocumentFault, parse_document
from shared.errors import UserError

MOST = 2_000
"""Documents of one text."""
_SEPARATOR = re.compile(r"^---(?:[ \t].*)?$", re.MULTILINE)


def documents(name: str, text: str) -> list[object]:
    """The documents of a YAML or JSON text, parsed. UserError if one cannot be."""
    found = []
    parts = _SEPARATOR.split(text, MOST)
    if len(parts) > MOST:
        raise UserError(f"{name}: more than {MOST} documents; ask in several parts")
    for number, part in enumerate(parts, 1):
        if not part.strip():
            continue
        try:
            document = parse_document(part)
        except DocumentFault as fault:
            raise UserError(f"{name}: document {number}: {fault}") from None
        if document.repeated:
            raise UserError(f"{name}: document {number}: {document.repeated[0]}")
        if document.value is not None:
            found.append(document.value)
    return found
