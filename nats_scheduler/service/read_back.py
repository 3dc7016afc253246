"""Read the documents of an answer back into what they were made of.

The rule: what is read back is equal to what the sidecar described, so that a command prints the same, whether it asked
or read. Each function raises `ValueError`, `KeyError` or `TypeError` for a document that no sidecar of this version
writes.
Cost: some ten microseconds for each schedule.
"""

from typing import Any

from nats_scheduler.engine.events import Ending, HeadersMisnamed
from nats_scheduler.engine.holding.inactive import Rejected
from nats_scheduler.engine.views.outlook import State
from nats_scheduler.engine.views.view import FiredBy, ListedSchedule
from nats_scheduler.message.dialect import DIALECTS, PORTABLE, Dialect
from nats_scheduler.message.misnamed import Misnamed
from nats_scheduler.message.policies import Policies, ignored_policies, read_policies, syntax_of, with_policies
from nats_scheduler.message.rejection import Failing, Rejection
from nats_scheduler.message.schedule_form import FIELDS, Terms, terms_of
from nats_scheduler.observe.documents import instant_of
from nats_scheduler.schedule.patterns import InvalidPattern, InvalidTimeZone, Pattern, parse_pattern


def read_schedule(document: Any) -> ListedSchedule:
    """Read a document of a schedule."""
    pattern, ends = _pattern(document), document["ends"]
    policies = _policies(document, pattern)
    terms, pattern = _terms(document, policies), with_policies(pattern, policies, document["subject"])
    failing, fire, unfired_since = document["failing"], document["next_fire"], document["unfired_since"]
    return ListedSchedule(
        document["subject"],
        document["sequence"],
        instant_of(document["stored"]),
        pattern,
        terms,
        None if fire is None else int(fire["nanoseconds"]),
        State(document["state"]),
        FiredBy(document["fired_by"]),
        None if ends is None else instant_of(ends["utc"]),
        None if ends is None else Ending[str(ends["reason"]).upper()],
        None if failing is None else Failing(failing["err_code"], failing["description"], instant_of(failing["since"])),
        unfired_since=None if unfired_since is None else instant_of(unfired_since),
    )


def read_rejected(document: Any) -> Rejected:
    """Read a document of a rejected schedule."""
    error = document["error"]
    codes = error["err_code"], error["description"], error["header"], error["value"], error["reason"], error["code"]
    return Rejected(
        document["subject"],
        document["sequence"],
        Rejection(*codes),
        instant_of(document["stored"]),
        _dialect(document),
        document["pattern"] or "",
        document["target"] or "",
    )


def read_misnamed(document: Any) -> HeadersMisnamed:
    """Read a document of a message with misnamed headers."""
    headers = tuple(Misnamed(one["header"], one["reason"]) for one in document["headers"])
    return HeadersMisnamed(document["subject"], document["sequence"], instant_of(document["stored"]), headers)


def _pattern(document: Any) -> Pattern:
    syntax = syntax_of(document["policies"]) if _dialect(document) is PORTABLE else None
    pattern = parse_pattern(document["pattern"], document["time_zone"], syntax)
    if pattern is None or isinstance(pattern, InvalidPattern | InvalidTimeZone):
        raise ValueError(f"pattern of {document['pattern']!r}")
    return pattern


def _policies(document: Any, pattern: Pattern) -> Policies:
    dialect = _dialect(document)
    fields = {dialect.schedule + b"-" + name.encode(): value for name, value in document["policies"].items()}
    if document["fired_by"] != FiredBy.SIDECAR:
        return ignored_policies(fields, dialect)
    policies = read_policies(fields, dialect, pattern)
    if isinstance(policies, Rejection):
        raise ValueError(str(policies))
    return policies


def _terms(document: Any, policies: Policies) -> Terms:
    dialect, texts = _dialect(document), ((field, document[field.name]) for field in FIELDS)
    return terms_of({field.header(dialect): text for field, text in texts if text is not None}, dialect, policies)


def _dialect(document: Any) -> Dialect:
    return {one.name: one for one in DIALECTS}[document["dialect"]]
