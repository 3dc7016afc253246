"""The users that `deploy/helm/nats/server.yaml` gives a server, and a server's configuration with them.

Its rule: the file is the one source; passwords stand in the place of the variables.
"""

import json
import re
from typing import Any

from tests.deploy.files import nats_values
from tests.deploy.running import Secrets

SECRETS: Secrets = {
    "nats-scheduler-user": {"user": "scheduler", "password": "p1"},
    "nats-scheduler-calendars-user": {"user": "calendars", "password": "p2"},
    "nats-scheduler-web-user": {"user": "web", "password": "p3"},
    "nats-shop-user": {"user": "shop", "password": "p4"},
    "nats-scheduler-web-token": {"token": "t" * 48},
}
"""The Secrets that the page has the operator create, by name and key."""


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
