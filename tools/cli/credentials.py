"""flotilla credentials: create users, passwords and certificates for NATS and Valkey, separate for each service."""

import argparse
import hashlib
import io
import json
import secrets
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from shared.config import values
from shared.errors import UserError
from tools.cli.arguments import at_least

if TYPE_CHECKING:
    from shared.certificates import Pair

DESCRIPTION = "Creates credentials of all services for NATS and Valkey, and the users file of each server."
EXAMPLES = """\
examples:
  flotilla credentials compose                                files in deploy/secrets, for deploy/docker-compose.yml
  flotilla credentials kubernetes | kubectl create -f -       Secrets, for k8s/overlays
  flotilla credentials compose --folder - | tar -xkC deploy   if flotilla is available in a container only

Each service gets its own user on NATS, restricted to the subjects that it needs, and if it uses Valkey, its own user
there, restricted to its keys. Both servers get a certificate, signed by a temporary authority whose key is discarded,
or by yours with --ca-cert and --ca-key. Existing files are never replaced.
"""
NAMESPACE = "flotilla-system"
FOLDER = "deploy/secrets"
DAYS = 5 * 365
PASSWORD_BYTES = 24
IN_KUBERNETES = "/etc/flotilla-credentials"
IN_COMPOSE = "/run/secrets"
"""Where services find their credentials."""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("where", choices=("compose", "kubernetes"), help="format of the credentials")
    command.add_argument(
        "--folder",
        default=FOLDER,
        metavar="FOLDER",
        help=f"folder for compose; - writes a tar archive to standard output (default {FOLDER})",
    )
    command.add_argument("--ca-cert", type=Path, metavar="FILE", help="certificate of your own authority, PEM")
    command.add_argument("--ca-key", type=Path, metavar="FILE", help="key of your own authority, PEM, unencrypted")
    command.add_argument(
        "--days", type=at_least(1), default=DAYS, metavar="N", help=f"validity of certificates in days (default {DAYS})"
    )
    command.add_argument(
        "--prefix", default="flotilla", metavar="WORD", help="the prefix setting of all services (default flotilla)"
    )


def run(options: argparse.Namespace) -> int:
    if (options.ca_cert is None) != (options.ca_key is None):
        raise UserError("--ca-cert and --ca-key go together")
    try:
        values.prefix(options.prefix)
    except ValueError as error:
        raise UserError(f"--prefix: {error}, not {options.prefix!r}") from None
    in_kubernetes = options.where == "kubernetes"
    made = make(
        options.prefix,
        IN_KUBERNETES if in_kubernetes else IN_COMPOSE,
        timedelta(days=options.days),
        None if options.ca_cert is None else (options.ca_cert, options.ca_key),
    )
    if in_kubernetes:
        print(manifests(made))
    elif options.folder == "-":
        write_archive(made)
    else:
        write_files(made, Path(options.folder))
        print(f"written: {options.folder}")
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """`nats_urls`, `redis_urls`: by user. `nats_users`, `redis_users`: for the servers' configurations."""

    ca: str
    nats_urls: Mapping[str, str]
    redis_urls: Mapping[str, str]
    nats_users: str
    redis_users: str
    nats: "Pair"
    redis: "Pair"


def make(prefix: str, folder: str, lasts: timedelta, authority_files: tuple[Path, Path] | None) -> Credentials:
    """`folder`: where services find `ca.crt`."""
    from shared.bus.rights import USERS as NATS_USERS
    from shared.bus.rights import authorization
    from shared.certificates import Authority
    from shared.store.rights import DEFAULT_USER, rule
    from shared.store.rights import USERS as REDIS_USERS

    now = datetime.now(UTC)
    if authority_files is None:
        authority = Authority.create("flotilla credentials", now, lasts)
    else:
        authority = Authority.read(*authority_files)
    nats_passwords = {user: secrets.token_urlsafe(PASSWORD_BYTES) for user in NATS_USERS}
    redis_passwords = {user: secrets.token_urlsafe(PASSWORD_BYTES) for user in REDIS_USERS}
    rules = [
        rule(user, "#" + hashlib.sha256(word.encode()).hexdigest(), prefix) for user, word in redis_passwords.items()
    ]
    return Credentials(
        ca=authority.certificate,
        nats_urls={user: f"tls://{user}:{password}@nats:4222" for user, password in nats_passwords.items()},
        redis_urls={
            user: f"rediss://{user}:{password}@valkey:6379/0?ssl_ca_certs={folder}/ca.crt"
            for user, password in redis_passwords.items()
        },
        nats_users=authorization(prefix, nats_passwords),
        redis_users="".join(f"user {each}\n" for each in (DEFAULT_USER, *rules)),
        nats=authority.sign(_hosts("nats"), now, lasts),
        redis=authority.sign(_hosts("valkey"), now, lasts),
    )


def _hosts(name: str) -> tuple[str, ...]:
    """The names of a server in Compose, in Kubernetes, and for its own health checks and port-forward."""
    service = f"{name}.{NAMESPACE}"
    return name, service, f"{service}.svc", f"{service}.svc.cluster.local", "localhost", "127.0.0.1"


def files_of(made: Credentials) -> dict[str, str]:
    """Contents by name, for Compose."""
    return {
        "ca.crt": made.ca,
        **{f"{user}-nats-url": url for user, url in made.nats_urls.items()},
        **{f"{user}-redis-url": url for user, url in made.redis_urls.items()},
        "nats-users": made.nats_users,
        "nats.crt": made.nats.certificate,
        "nats.key": made.nats.key,
        "valkey-users": made.redis_users,
        "valkey.crt": made.redis.certificate,
        "valkey.key": made.redis.key,
    }


def write_files(made: Credentials, folder: Path) -> None:
    """Write the folder whole or not at all: under another name first, which is removed if that fails.

    Containers run as users that the host does not know, and have to read the files; the folder keeps others out.
    """
    if folder.exists():
        raise UserError(f"{folder} exists: remove it to make new credentials")
    unfinished: Path | None = None
    try:
        unfinished = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", suffix=".tmp", dir=folder.parent))
        for name, text in files_of(made).items():
            path = unfinished / name
            path.write_text(text)
            path.chmod(0o644)
        unfinished.rename(folder)
    except FileNotFoundError as cause:
        raise UserError(
            f"{folder} cannot be written: {folder.parent} is not there; name another folder by --folder"
        ) from cause
    except OSError as cause:
        raise UserError(f"{folder} cannot be written: {cause.strerror}") from cause
    finally:
        if unfinished is not None:
            shutil.rmtree(unfinished, ignore_errors=True)


def write_archive(made: Credentials) -> None:
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as archive:
        folder = tarfile.TarInfo("secrets")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o700
        archive.addfile(folder)
        for name, text in files_of(made).items():
            entry = tarfile.TarInfo(f"secrets/{name}")
            entry.size, entry.mode = len(text.encode()), 0o644
            archive.addfile(entry, io.BytesIO(text.encode()))


def secrets_of(made: Credentials) -> dict[str, dict[str, str]]:
    """Contents by name, of each Secret of Kubernetes."""
    found = {f"flotilla-{user}": {"nats-url": url, "ca.crt": made.ca} for user, url in made.nats_urls.items()}
    for user, url in made.redis_urls.items():
        found[f"flotilla-{user}"]["redis-url"] = url
    found["nats-server"] = {"users.conf": made.nats_users, "tls.crt": made.nats.certificate, "tls.key": made.nats.key}
    found["valkey-server"] = {
        "users.acl": made.redis_users,
        "tls.crt": made.redis.certificate,
        "tls.key": made.redis.key,
        "ca.crt": made.ca,
    }
    return found


def manifests(made: Credentials) -> str:
    items = []
    for name, data in secrets_of(made).items():
        metadata = {"name": name, "namespace": NAMESPACE, "labels": {"app.kubernetes.io/part-of": "flotilla"}}
        items.append({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data})
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=1)
