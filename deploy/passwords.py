#!/usr/bin/env python3
"""Passwords for NATS and Valkey, drawn at random, in the files that these servers and the services read.

    python3 deploy/passwords.py compose                          files in deploy/secrets, for docker-compose.yml
    python3 deploy/passwords.py kubernetes | kubectl create -f -       Secrets, for k8s/overlays

Nothing that is there already is replaced. Needs Python alone.
"""

import argparse
import hashlib
import json
import secrets
import sys
from pathlib import Path

PREFIX = "flotilla"
"""The setting `prefix`: Redis keys of other beginnings are not for us."""
REDIS_COMMANDS = (
    "ping", "select", "multi", "exec", "eval", "evalsha", "get", "set", "exists", "unlink", "rename", "hmget",
    "hgetall", "hvals", "hset", "hdel",
)  # fmt: skip
NAMESPACE = "flotilla-system"
FOLDER = Path(__file__).parent / "secrets"


def for_nats() -> tuple[str, str]:
    """The URL, and what NATS's configuration includes."""
    password = secrets.token_urlsafe(24)
    users = f'authorization {{ user: flotilla, password: "{password}" }}\n'
    return f"nats://flotilla:{password}@nats:4222", users


def for_redis() -> tuple[str, str]:
    """The URL, and Valkey's list of users. Who gives no password may ask whether it is there: health checks do."""
    password = secrets.token_urlsafe(24)
    digest = hashlib.sha256(password.encode()).hexdigest()
    allowed = " ".join(f"+{command}" for command in REDIS_COMMANDS)
    users = (
        "user default on nopass resetkeys resetchannels -@all +ping\n"
        f"user flotilla on #{digest} ~{PREFIX}:* resetchannels -@all {allowed}\n"
    )
    return f"redis://flotilla:{password}@valkey:6379/0", users


def write_files(folder: Path) -> None:
    """Containers run as users whom the host does not know, and have to read the files; the folder keeps others out."""
    folder.mkdir(mode=0o700)
    (nats_url, nats_users), (redis_url, redis_users) = for_nats(), for_redis()
    contents = {"nats-url": nats_url, "nats-users": nats_users, "redis-url": redis_url, "valkey-users": redis_users}
    for name, text in contents.items():
        path = folder / name
        path.write_text(text)
        path.chmod(0o644)


def manifests() -> str:
    (nats_url, nats_users), (redis_url, redis_users) = for_nats(), for_redis()
    contents = {
        "flotilla-nats": {"url": nats_url},
        "nats-users": {"users.conf": nats_users},
        "flotilla-redis": {"url": redis_url},
        "valkey-users": {"users.acl": redis_users},
    }
    items = [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app.kubernetes.io/part-of": "flotilla"}},
            "stringData": data,
        }
        for name, data in contents.items()
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=1)


def main() -> int:
    command = argparse.ArgumentParser(description="Draws passwords for NATS and Valkey.")
    command.add_argument("where", choices=("compose", "kubernetes"))
    command.add_argument("--folder", type=Path, default=FOLDER, help="of the files (default deploy/secrets)")
    options = command.parse_args()
    if options.where == "kubernetes":
        print(manifests())
        return 0
    try:
        write_files(options.folder)
    except FileExistsError:
        print(f"{options.folder} is there already: remove it to have new passwords", file=sys.stderr)
        return 1
    print(f"written: {options.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
