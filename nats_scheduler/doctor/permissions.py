"""The permissions that the sidecar's user needs, and which of them are missing.

Rule: `ROWS` is the table of `docs/operating/security.md`, row by row; a test compares the two.
What is needed depends on who fires a stream, so a stream that only the server fires asks for less.
"""

import uuid
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from nats_scheduler.control.requests import DEFAULT_PREFIX
from nats_scheduler.doctor.facts import AccountFacts, Need, StreamFacts
from nats_scheduler.message.capabilities import Capabilities
from nats_scheduler.message.findings import Code, Finding
from nats_scheduler.message.user_permissions import PUBLISH, SUBSCRIBE
from nats_scheduler.runtime.access import Access
from nats_scheduler.runtime.canary import CANARY_STREAM, CANARY_SUBJECTS
from nats_scheduler.runtime.modes import Mode

YES, OPTIONAL, SPARE = "yes", "optional", "–"
COLUMNS = ("2.10", "2.11", "portable", "native")

MAX_SUBJECTS_NAMED = 5
"""Most subjects that the note about unclear permissions names."""


class PermissionRow(NamedTuple):
    """One row of the table; names in braces stand for what depends on the account."""

    act: str
    subject: str
    columns: tuple[str, str, str, str]


_ALL: tuple[str, str, str, str] = (YES, YES, YES, YES)
_MAYBE: tuple[str, str, str, str] = (OPTIONAL, OPTIONAL, OPTIONAL, OPTIONAL)
_FIRES: tuple[str, str, str, str] = (YES, YES, YES, SPARE)

ROWS: Sequence[PermissionRow] = (
    PermissionRow(PUBLISH, "{api}.INFO", _ALL),
    PermissionRow(PUBLISH, "{api}.STREAM.LIST", _ALL),
    PermissionRow(PUBLISH, "{api}.STREAM.INFO.{stream}", _ALL),
    PermissionRow(PUBLISH, "{api}.STREAM.CREATE.KV_{bucket}", _ALL),
    PermissionRow(PUBLISH, "{api}.STREAM.UPDATE.{stream}", (SPARE, OPTIONAL, SPARE, SPARE)),
    PermissionRow(PUBLISH, "{api}.STREAM.MSG.GET.{stream}", _ALL),
    PermissionRow(PUBLISH, "{api}.STREAM.PURGE.{stream}", (YES, YES, YES, OPTIONAL)),
    PermissionRow(PUBLISH, "{api}.STREAM.MSG.DELETE.{stream}", _FIRES),
    PermissionRow(PUBLISH, "{api}.CONSUMER.CREATE.{stream}.{consumer}", _ALL),
    PermissionRow(PUBLISH, "{api}.CONSUMER.MSG.NEXT.{stream}.{consumer}", _ALL),
    PermissionRow(PUBLISH, "{api}.CONSUMER.INFO.{stream}.{consumer}", _ALL),
    PermissionRow(PUBLISH, "{api}.CONSUMER.LIST.{stream}", _MAYBE),
    PermissionRow(PUBLISH, "{api}.CONSUMER.DELETE.{stream}.{consumer}", _MAYBE),
    PermissionRow(PUBLISH, "{registry}.>", _ALL),
    PermissionRow(PUBLISH, "{targets}", _FIRES),
    PermissionRow(PUBLISH, "nats_scheduler.advisory.>", (OPTIONAL, OPTIONAL, OPTIONAL, SPARE)),
    PermissionRow(PUBLISH, "{api}.STREAM.CREATE.{failures}", _MAYBE),
    PermissionRow(PUBLISH, "{api}.STREAM.CREATE.{canary}", _MAYBE),
    PermissionRow(PUBLISH, CANARY_SUBJECTS, _MAYBE),
    PermissionRow(PUBLISH, "{api}.STREAM.DELETE.{canary}", _MAYBE),
    PermissionRow(PUBLISH, "nats_scheduler.v1.>", _MAYBE),
    PermissionRow(PUBLISH, "{inbox}.>", _MAYBE),
    PermissionRow(SUBSCRIBE, "{inbox}.>", _ALL),
    PermissionRow(SUBSCRIBE, "$JS.API.STREAM.CREATE.*", _ALL),
    PermissionRow(SUBSCRIBE, "$JS.API.STREAM.UPDATE.*", _ALL),
    PermissionRow(SUBSCRIBE, "$JS.API.STREAM.RESTORE.*", _ALL),
    PermissionRow(SUBSCRIBE, "$JS.API.STREAM.DELETE.*", _ALL),
    PermissionRow(SUBSCRIBE, "$JS.API.STREAM.PURGE.*", _ALL),
    PermissionRow(SUBSCRIBE, "$JS.API.STREAM.MSG.DELETE.*", _ALL),
    PermissionRow(SUBSCRIBE, "$JS.EVENT.ADVISORY.STREAM.RESTORE_COMPLETE.*", _MAYBE),
    PermissionRow(SUBSCRIBE, "{queue_subjects}", _ALL),
    PermissionRow(SUBSCRIBE, "nats_scheduler.v1.>", _MAYBE),
    PermissionRow(SUBSCRIBE, "nats_scheduler.control.v1.>", _MAYBE),
    PermissionRow(SUBSCRIBE, "$SRV.>", _MAYBE),
)

_OF_CANARY = {CANARY_SUBJECTS, *(row.subject for row in ROWS if "{canary}" in row.subject)}


class PermissionPlace(NamedTuple):
    """The subjects of one account that do not depend on a stream."""

    api_prefix: str
    bucket: str
    failures: str
    """The stream that keeps advisories."""
    registry: str
    """The subject below which the bucket is written."""
    inbox: str
    consumer: str
    """A name that no consumer has."""
    has_canary: bool = False
    """True if an instance tests itself by a canary, as far as is known."""


def place_of(access: Access) -> PermissionPlace:
    """Return the subjects of the account that a sidecar with these settings serves."""
    settings = access.settings
    return PermissionPlace(
        api_prefix=access.api.prefix,
        bucket=settings.registry_bucket,
        failures=settings.failures_stream,
        registry=access.registry.written_to,
        inbox=settings.connection.inbox_prefix,
        consumer=f"nats-scheduler-{uuid.uuid4().hex[:16]}",
        has_canary=settings.canary_interval is not None,
    )


def column_of(mode: Mode | None, server: Capabilities) -> str:
    """Return the column of the table for a stream; None stands for the account without a stream."""
    if mode is Mode.EMULATED or (mode is None and not server.schedules_natively):
        return "2.11" if server.has_guard else "2.10"
    return "native" if mode is Mode.NATIVE else "portable"


def needs_of(place: PermissionPlace, server: Capabilities, streams: Sequence[StreamFacts]) -> list[Need]:
    """Return what the sidecar's user needs to serve these streams, each permission once."""
    needs: dict[tuple[str, str], bool] = {}
    served = [stream for stream in streams if stream.mode is not None]
    left_out = set() if place.has_canary else _OF_CANARY
    for row in ROWS:
        if row.subject in left_out:
            continue
        for subject, column in _subjects_of(row, place, server, served):
            need = row.columns[COLUMNS.index(column)]
            if need != SPARE:
                key = row.act, subject
                needs[key] = needs.get(key, True) and need == OPTIONAL
    return [Need(act, subject, is_optional) for (act, subject), is_optional in needs.items()]


def _subjects_of(
    row: PermissionRow, place: PermissionPlace, server: Capabilities, streams: Sequence[StreamFacts]
) -> Iterator[tuple[str, str]]:
    """Yield the subjects of a row for the account, the bucket and each stream, with the column that counts."""
    known = {"api": place.api_prefix, "inbox": place.inbox, "failures": place.failures, "canary": CANARY_STREAM}
    known |= {"registry": place.registry, "bucket": place.bucket}
    account = column_of(streams[0].mode if streams else None, server)
    if row.subject == "{targets}":
        for stream in streams:
            targets = {listed.terms.target for listed in stream.schedules}
            yield from ((target, column_of(stream.mode, server)) for target in sorted(targets))
    elif row.subject == "{queue_subjects}":
        for stream in streams:
            if stream.retention != "limits":
                yield from ((subject, column_of(stream.mode, server)) for subject in stream.subjects)
    elif "{stream}" in row.subject:
        of_bucket = "MSG.DELETE" not in row.subject and "UPDATE" not in row.subject
        if of_bucket:
            yield row.subject.format(stream=f"KV_{place.bucket}", consumer=place.consumer, **known), account
        for stream in streams:
            if "CONSUMER" not in row.subject or stream.retention == "limits":
                subject = row.subject.format(stream=stream.name, consumer=place.consumer, **known)
                yield subject, column_of(stream.mode, server)
    else:
        yield row.subject.format(**known), account


def check_permissions(facts: AccountFacts) -> Iterator[Finding]:
    """Report the permissions that are missing, and those that could not be examined."""
    for need in facts.missing:
        code = Code.PERMISSION_OPTIONAL if need.is_optional else Code.PERMISSION_MISSING
        what = f"this user may not {need.act} {'to ' if need.act == PUBLISH else ''}{need.subject}"
        command = f"allow the sidecar's user to {need.act}: {_granted(need.subject)}"
        yield Finding(code, what, command)
    subjects = [need.subject for need in facts.unclear if not need.is_optional]
    if subjects:
        more = len(subjects) - MAX_SUBJECTS_NAMED
        named = ", ".join(subjects[:MAX_SUBJECTS_NAMED]) + (f" and {more} more" if more > 0 else "")
        what = f"not examined, because that would publish: {named}"
        yield Finding(Code.PERMISSION_UNCLEAR, what, "allow this user to publish: $SYS.REQ.USER.INFO")


def _granted(subject: str) -> str:
    """Return the subject as it is granted: with wildcards for what the sidecar names itself."""
    tokens = subject.split(".")
    if subject.startswith(f"{DEFAULT_PREFIX}.CONSUMER."):
        tokens[-1] = "*"
    return ".".join(tokens)
