"""Where answers come: below the prefix like all else, and by role, so that nobody can read those of another."""

INBOXES = "inbox."
CLI = "cli"
"""The role of the command line."""


def inbox(role: str, unique: str) -> str:
    """Of one process; each answer comes on a subject of its own below this one."""
    return f"{INBOXES}{role}.{unique}"
