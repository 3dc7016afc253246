"""Templates: HTML from what the sidecars answered.

The rules: every value is escaped, and made visible (`shown.visible`), because the environment does both for each
expression of each template; no template marks anything as safe. A value that a template misspells is an error.
Cost: templates are compiled once.
"""

from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from nats_scheduler.jetstream.foreign_json import time_of
from nats_scheduler.web import shown
from nats_scheduler.web.links import address


def templates() -> Environment:
    """Return the environment of all templates."""
    environment = Environment(
        loader=PackageLoader("nats_scheduler.web"),
        autoescape=True,
        finalize=shown.visible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.globals["address"] = address
    environment.filters.update(
        instant=time_of,
        utc=shown.utc_text,
        when=shown.when_text,
        upcoming=shown.upcoming_text,
        fewer_digits=shown.fewer_digits,
        clock=shown.clock_text,
        minute=shown.minute_text,
        distance=shown.distance_text,
        lateness=shown.lateness_text,
        count=shown.count_text,
        plural=shown.plural,
        listed=shown.listed,
        grade=shown.grade,
        width=shown.width_class,
    )
    return environment


def render(environment: Environment, name: str, values: Mapping[str, Any]) -> bytes:
    """Return a page as UTF-8; what cannot be encoded is replaced."""
    return environment.get_template(name).render(values).encode("utf-8", "replace")
