"""Settings from environment variables: `NATS_SCHEDULER_*` for every setting, and the variables of the `nats` CLI.

Rule: a variable with the prefix `NATS_SCHEDULER_` that is no setting is an error, so that a typing error is reported.
The exception: variables that Kubernetes sets in every container for a Service called nats-scheduler are ignored.
As in the CLI, an empty variable counts as not set.
Cost: one check for each name. Limit: no JSON inside variables; lists are separated by commas.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches

from nats_scheduler.settings.fields import FILE_VARIABLE, VARIABLE_PREFIX, setting_fields
from nats_scheduler.settings.problems import Problem, looks_secret, shown

CONTEXT_VARIABLE = "NATS_CONTEXT"
PROXY_VARIABLE = "NATS_SOCKS_PROXY"

_SERVICE_LINK_NAME = re.compile(
    r"(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$"
)
_SERVICE_LINK_VALUE = re.compile(r"^(tcp|udp|sctp)://\S+:[0-9]+$")


def read_environment(environ: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return the text and the source (`$NAME`) of every setting that has a variable."""
    found = {}
    for key, field in setting_fields().items():
        for variable in reversed(field.variables):
            text = environ.get(variable, "")
            if text and not is_service_link(variable, text):
                found[key] = (text, f"${variable}")
    return found


def unknown_variables(environ: Mapping[str, str]) -> list[Problem]:
    """Return a problem for each variable that looks like a setting but is not one, or that is not supported."""
    known = {FILE_VARIABLE, *(name for field in setting_fields().values() for name in field.variables)}
    problems = []
    for name, value in environ.items():
        if not name.startswith(VARIABLE_PREFIX) or name in known or is_service_link(name, value):
            continue
        similar = get_close_matches(name, known, n=1)
        expected = f"a variable that is a setting, such as {similar[0] if similar else VARIABLE_PREFIX + 'WINDOW'}"
        problems.append(Problem(name, shown(value, secret=looks_secret(name)), expected, "environment"))
    if environ.get(PROXY_VARIABLE):
        proxy = shown(environ[PROXY_VARIABLE])
        problems.append(Problem(PROXY_VARIABLE, proxy, "no proxy: the client does not support SOCKS", "environment"))
    return problems


def overwritten_variables(environ: Mapping[str, str], given: Collection[str]) -> tuple[str, ...]:
    """Return a warning for each setting that is not `given`, and whose variable Kubernetes may have overwritten."""
    fields = [field for field in setting_fields().values() if field.key not in given]
    return tuple(
        f"{name} of {shown(environ[name])} is an address that Kubernetes sets for a Service, and is ignored; "
        "set the variable in the pod, or enableServiceLinks to false"
        for field in fields
        for name in field.variables
        if is_service_link(name, environ.get(name, ""))
    )


def is_service_link(name: str, value: str) -> bool:
    """Return whether Kubernetes has set this variable for a Service called nats-scheduler(-something).

    `NATS_SCHEDULER_METRICS_PORT=tcp://10.0.0.7:9090` is one, although its name is that of a setting.
    """
    if not name.startswith(VARIABLE_PREFIX):
        return False
    is_port = name.endswith("PORT") and _SERVICE_LINK_VALUE.match(value) is not None
    return is_port or _SERVICE_LINK_NAME.search(name) is not None
