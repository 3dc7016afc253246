"""A search as a person types it, as the keys of a request for schedules.

Rule: a text with a wildcard is a subject, as everywhere; any other is a part of one.
"""

from collections.abc import Mapping

from nats_scheduler.message.subjects import pattern_or_part

FIELDS = ("filter", "target", "owner", "state", "kind", "order")
"""The fields of a search on the status page, which are the values in its address too."""


def search_keys(typed: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return the keys of a request for what was typed into the fields; "" and None stand for anything."""
    subject, part = pattern_or_part(typed.get("filter"))
    target, target_part = pattern_or_part(typed.get("target"))
    kept = {name: typed[name] for name in ("owner", "state", "kind", "order") if typed.get(name)}
    texts = {"filter": subject, "contains": part, "target": target, "target_contains": target_part}
    return {**{name: text for name, text in texts.items() if text}, **kept}
