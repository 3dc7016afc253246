"""A rendered container, run as a process: its arguments, its variables, its files; and the users of its server.

The users are those that `deploy/helm/nats/server.yaml` gives a server; passwords stand in the place of the variables.

Its rule: nothing is added to what is rendered but the folder in which its files lie, so that a variable, a key of a
Secret or a file that is missing there is missing here. The image's variables are those of the Dockerfile.
Limit: no namespaces, no user of its own; a path below /etc/nats-scheduler or in the volume is one below the test's
folder.
"""

import http.client
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from nats_scheduler.runtime.embedded import HOST
from tests.deploy.files import VOLUME, image_variables, nats_values
from tests.deploy.rendering import Objects
from tests.harness.processes import ChildProcess, sidecar
from tests.harness.waiting import eventually

HOME = "/etc/nats-scheduler"
ANSWER_SECONDS = 10.0
PROBE_SECONDS = 90.0
"""Longest wait until a probe answers as it should, on a busy machine."""

Secrets = dict[str, dict[str, str]]
SECRETS: Secrets = {
    "nats-scheduler-user": {"user": "scheduler", "password": "p1"},
    "nats-scheduler-calendars-user": {"user": "calendars", "password": "p2"},
    "nats-scheduler-web-user": {"user": "web", "password": "p3"},
    "nats-shop-user": {"user": "shop", "password": "p4"},
    "nats-scheduler-web-token": {"token": "t" * 48},
}
"""The Secrets that the page has the operator create, by name and key."""


def started(
    container: dict[str, Any], pod: dict[str, Any], objects: Objects, secrets: Secrets, folder: Path
) -> ChildProcess:
    """Start the process of a container of a pod."""
    files = folder / container["name"]
    for mount in container["volumeMounts"]:
        (volume,) = [one for one in pod["volumes"] if one["name"] == mount["name"]]
        target = Path(_here(mount["mountPath"], files))
        target.mkdir(parents=True, exist_ok=True)
        if "emptyDir" in volume:
            target.chmod(0o777)
        for name, text in _content(volume, objects, secrets).items():
            (target / name).write_text(_here(text, files), "utf-8")
    given = {one["name"]: _value(one, secrets) for one in container["env"]}
    env = {name: _here(value, files) for name, value in {**image_variables(), **given}.items()}
    arguments = [_here(word, files) for word in container["args"]]
    return sidecar(*arguments, folder=folder, name=container["name"], env=env)


def _value(variable: dict[str, Any], secrets: Secrets) -> str:
    if "value" in variable:
        return str(variable["value"])
    reference = variable["valueFrom"]["secretKeyRef"]
    return secrets[reference["name"]][reference["key"]]


def _content(volume: dict[str, Any], objects: Objects, secrets: Secrets) -> dict[str, str]:
    """Return the files of a volume by name; an empty one has none."""
    if "emptyDir" in volume:
        return {}
    if "secret" in volume:
        source, kept = secrets[volume["secret"]["secretName"]], volume["secret"].get("items")
    else:
        source, kept = objects["ConfigMap", volume["configMap"]["name"]]["data"], volume["configMap"].get("items")
    return {one["path"]: source[one["key"]] for one in kept} if kept else source


def _here(text: str, files: Path) -> str:
    return text.replace(HOME, str(files)).replace(VOLUME, str(files / "volume"))


class Answer(NamedTuple):
    """The answer of a page on loopback; status 0 while nobody answers."""

    status: int
    text: str


def answer_of(port: int, path: str, **headers: str) -> Answer:
    """Ask for a page on loopback."""
    connection = http.client.HTTPConnection(HOST, port, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return Answer(answer.status, answer.read().decode())
    except OSError as error:
        return Answer(0, str(error))
    finally:
        connection.close()


async def probed(container: dict[str, Any], probe: str, wanted: int = 200) -> None:
    """Wait until a probe of a container answers with this status."""
    asked = container[f"{probe}Probe"]["httpGet"]
    (port,) = [one["containerPort"] for one in container["ports"] if one["name"] == asked["port"]]
    await eventually(
        lambda: answer_of(port, asked["path"]).status == wanted,
        within_seconds=PROBE_SECONDS,
        describe=lambda: f"{probe} {wanted}, and not {answer_of(port, asked['path'])}",
    )


def users() -> dict[str, dict[str, Any]]:
    """Return the permissions of the users, by name."""
    listed = nats_values("server.yaml")["config"]["merge"]["accounts"]["SHOP"]["users"]
    return {one["user"]: one["permissions"] for one in listed}


def variables() -> dict[str, str]:
    """Return the variables of the server with what the Secrets have for them."""
    given = nats_values("server.yaml")["container"]["env"]
    references = {name: one["valueFrom"]["secretKeyRef"] for name, one in given.items()}
    return {name: SECRETS[one["name"]][one["key"]] for name, one in references.items()}


def filled_in(text: str) -> str:
    """Return a server's configuration with passwords in the place of its variables."""
    for name, value in variables().items():
        text = text.replace(f"${name}", value)
    return text


def accounts() -> str:
    """Return the accounts as a server's configuration has them."""
    text = json.dumps({"accounts": nats_values("server.yaml")["config"]["merge"]["accounts"]})
    return filled_in(re.sub(r'"<< (\$\w+) >>"', r"\1", text)[1:-1])


def url_of(url: str, user: str) -> str:
    """Return a server's address with a user in it."""
    (password,) = [one["password"] for one in SECRETS.values() if one.get("user") == user]
    return url.replace("nats://", f"nats://{user}:{password}@")
