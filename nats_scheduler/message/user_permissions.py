"""The permissions of a user, as a server lists them, and whether they suffice for something.

Rule: as the server does: what is denied is not permitted, and a list of what is allowed leaves out all else.
"""

from collections.abc import Mapping

from nats_scheduler.message.foreign_json import inner
from nats_scheduler.message.subjects import subject_matches

PUBLISH, SUBSCRIBE = "publish", "subscribe"


def permits(permissions: Mapping[str, object], act: str, subject: str) -> bool:
    """Return whether a user with these permissions may publish or subscribe (`act`) to a subject."""
    rules = inner(permissions.get(act))
    allow, deny = _texts(rules.get("allow")), _texts(rules.get("deny"))
    if any(subject_matches(subject, one) for one in deny):
        return False
    return not allow or any(subject_matches(subject, one) for one in allow)


def _texts(value: object) -> list[str]:
    """Return the subjects of a list; one with a queue group counts without it."""
    return [str(one).partition(" ")[0] for one in value] if isinstance(value, list) else []
