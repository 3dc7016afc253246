"""The content of advisories: one table of the kinds and their keys, from which schema and reference page are derived.

The rule: every kind that is published is in the table, and its body has these keys and no other; tests check both.
`Reporter` publishes what went wrong, and `control.change_advisory` builds what says that a schedule was changed.
A kind that says what a finding says has its code as a name (`message.findings`).
Keys keep their names and meanings. New keys may be added, so a subscriber must ignore keys that it does not know.
Cost: none; the schema is built when it is printed.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from nats_scheduler.control.changes import Kind
from nats_scheduler.message.advisory_messages import ADVISORY_PREFIX, ADVISORY_TYPE, SCHEDULE_CHANGED

Key = dict[str, Any]
"""The JSON Schema of one key."""


class Advisory(NamedTuple):
    """One kind of advisory."""

    meaning: str
    keys: Mapping[str, Key]
    """The keys of its body beside `type` and `stream`."""


def _text(description: str) -> Key:
    return {"description": description, "type": "string"}


def _number(description: str, minimum: int | None = None) -> Key:
    key: Key = {"description": description, "type": "integer"}
    return key if minimum is None else key | {"minimum": minimum}


def _time(description: str) -> Key:
    """Describe an instant: RFC 3339 in UTC, to the nanosecond."""
    return {"description": description, **INSTANT}


def _list(description: str, items: Key) -> Key:
    return {"description": description, "type": "array", "items": items}


def _value(description: str) -> Key:
    return {"description": description, "type": ["string", "null"]}


def _switch(description: str) -> Key:
    return {"description": description, "type": "boolean"}


def _object(description: str, keys: dict[str, Key]) -> Key:
    return {"description": description, "type": "object", "properties": keys, "required": list(keys)}


INSTANT: Key = {
    "type": "string",
    "format": "date-time",
    "pattern": r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,9})?Z$",
}

STREAM = _text("The stream that the advisory is about.")
SCHEDULE = _text("Subject of the schedule.")
SEQUENCE = _number("Stream sequence of the schedule message.", 1)
DUE = _time("The fire time of the fire, RFC 3339 in UTC.")
SINCE = _time("The fire time of the first of them, RFC 3339 in UTC.")
CODE = _number("The server's error code; that of a newer server if this server has none.")
DESCRIPTION = _text("The server's description of that code.")
VALUE = _text("Its value, shortened.")
REFUSAL = _number("The server's error code; 403 if the sidecar's user may not publish to the target.")
ERROR = _text("The server's description of the error.")

PARTS = _object(
    "What the change made of the schedule that was there before: `fields`, a list of fields and policies, each with "
    "`name`, `before`, `after` and `exact`, which is false if a value is cut or a character in it was replaced; "
    "`headers`, the names of other headers that differ; and `body`, true if it has another body.",
    {
        "fields": _list(
            "Fields and policies that differ.",
            _object(
                "One of them.",
                {
                    "name": _text("That of the field, such as `pattern`, of the policy, or `dialect`."),
                    "before": _value("Its value before; null if it had none."),
                    "after": _value("Its value now; null if it has none."),
                    "exact": _switch("Whether both values are as they were written."),
                },
            ),
        ),
        "headers": _list("Names of headers that are none of a schedule and differ, at most 16.", {"type": "string"}),
        "body": _switch("Whether it has another body."),
    },
)

KINDS: Mapping[str, Advisory] = {
    "schedule_rejected": Advisory(
        "A message is an invalid schedule: it stays stored and never fires.",
        {
            "schedule": SCHEDULE,
            "seq": SEQUENCE,
            "code": CODE,
            "description": DESCRIPTION,
            "header": _text("The header that is wrong; empty if no header is."),
            "value": VALUE,
            "reason": _text("Why it is invalid, and what was expected."),
        },
    ),
    "header_misnamed": Advisory(
        "A header of a message looks like one of a schedule but is not: it has no effect.",
        {
            "subject": _text("Subject of the message."),
            "seq": _number("Stream sequence of the message."),
            "header": _text("The header as it was written."),
            "reason": _text("Why it has no effect, and which header may be meant."),
        },
    ),
    "schedule_ends_early": Advisory(
        "A schedule is held, but a limit of its stream or its TTL will remove it before its next fire.",
        {
            "schedule": SCHEDULE,
            "seq": SEQUENCE,
            "due": DUE,
            "ends": _time("When it will be removed, RFC 3339 in UTC."),
            "reason": _text("Why it will be removed."),
        },
    ),
    "calendar_missing": Advisory(
        "Schedules name a calendar that is not known: they wait for it, and fire nothing.",
        {
            "calendar": _text("Name of the calendar."),
            "reason": _text("Why it is not known."),
            "schedules": _number("How many schedules wait, of those that this instance fires."),
        },
    ),
    "clock_change_skipped": Advisory(
        "A change of the clock skips fire times of a schedule, so it fires next after them.",
        {
            "schedule": SCHEDULE,
            "seq": SEQUENCE,
            "time_zone": _text("Its time zone."),
            "skipped": _text("The first local time that does not exist and has no fire, without an offset."),
            "last_skipped": _text("The last one; the same as `skipped` if there is only one."),
            "clock_from": _text("The local time at which the clock goes forward."),
            "clock_to": _text("The local time that it shows instead."),
            "due": _time("Its next fire time, RFC 3339 in UTC."),
        },
    ),
    "schedule_lost": Advisory(
        "A schedule was removed before its next fire, by a limit or a TTL, without a request.",
        {
            "schedule": SCHEDULE,
            "seq": SEQUENCE,
            "due": DUE,
            "reason": _text("Why it was removed."),
        },
    ),
    "schedule_replaced_unfired": Advisory(
        "A schedule that fires once was replaced before its fire, by another body or by a message that is no schedule.",
        {
            "schedule": SCHEDULE,
            "seq": SEQUENCE,
            "published": _time("When it was published, RFC 3339 in UTC."),
            "due": _time("The fire time of the fire that is lost, RFC 3339 in UTC."),
            "replaced_by": _number("Stream sequence of the message that replaced it.", 1),
            "replaced": _time("When that was published, RFC 3339 in UTC."),
        },
    ),
    "fire_lost_to_replacement": Advisory(
        "A schedule was replaced when it was due and before that fire was stored, and the fire could not be kept.",
        {
            "schedule": SCHEDULE,
            "seq": SEQUENCE,
            "due": _time("The fire time of the fire that is lost, RFC 3339 in UTC."),
            "reason": _text("Why it could not be kept."),
        },
    ),
    "schedule_silent": Advisory(
        "A schedule stores nothing although it is to fire; reported again each day while it lasts.",
        {
            "schedule": SCHEDULE,
            "seq": SEQUENCE,
            "since": _time("The fire time of the first fire that is not stored, RFC 3339 in UTC."),
            "cause": _text("`refused`, `overlap`, `unanswered`, `republished`, `clock` or `unknown`."),
            "reason": _text("The cause, as a sentence."),
        },
    ),
    "target_unconsumed": Advisory(
        "Nobody consumes the target of a schedule for a day, as far as consumers show, and fires are stored there.",
        {
            "schedule": _text("Subject of a schedule with that target."),
            "target": _text("The target, shortened."),
            "since": _time("Since when this is known, RFC 3339 in UTC."),
            "reason": _text("What shows it: no consumer receives the target, or one that would delivers nothing."),
        },
    ),
    "schedule_only_dropped": Advisory(
        "A policy drops all fires of a schedule, three times in a row or more, over an hour or more.",
        {
            "schedule": SCHEDULE,
            "seq": SEQUENCE,
            "since": SINCE,
            "dropped": _number("How many they are."),
            "policy": _text("The policy, such as `X-Overlap: skip`."),
        },
    ),
    "fire_refused": Advisory(
        "A fire of a schedule was refused for the first time; it is retried as long as the schedule is held.",
        {
            "schedule": SCHEDULE,
            "seq": SEQUENCE,
            "target": _text("The subject that the fire was published to, shortened."),
            "due": DUE,
            "code": REFUSAL,
            "reason": ERROR,
        },
    ),
    "fire_forged": Advisory(
        "A message claims to be a fire of a schedule and cannot be one; it is treated as an ordinary message.",
        {
            "schedule": SCHEDULE,
            "seq": SEQUENCE,
            "due": _time("The fire time that it claims, RFC 3339 in UTC."),
            "subject": _text("The subject that it was published to, shortened; empty if it was removed."),
            "stored_as": _number("Its own stream sequence."),
            "reason": _text("Why it cannot be that fire."),
        },
    ),
    "target_mapped": Advisory(
        "What is published to the target of a schedule goes to another subject: the account maps it, as far as its "
        "fires show.",
        {
            "schedule": SCHEDULE,
            "seq": SEQUENCE,
            "target": _text("The target, shortened."),
            "reason": _text("What happened to its fires."),
        },
    ),
    "fires_missed": Advisory(
        "Fires of a schedule came due and were not stored; one make-up fire was stored for them.",
        {
            "schedule": SCHEDULE,
            "seq": SEQUENCE,
            "since": SINCE,
            "make_up_fire": _time("The fire time of the make-up fire, RFC 3339 in UTC."),
        },
    ),
    "fires_skipped": Advisory(
        "Fires of a schedule were not stored because a policy of the schedule dropped them.",
        {
            "schedule": SCHEDULE,
            "seq": SEQUENCE,
            "since": SINCE,
            "dropped": _number("How many they are."),
            "policy": _text("The policy, such as `X-Missed: skip`."),
        },
    ),
    "fire_timed_out": Advisory(
        "A fire is unfinished for longer than the `X-Timeout` of its schedule, and counts as finished.",
        {
            "schedule": SCHEDULE,
            "seq": SEQUENCE,
            "stored_as": _number("The stream sequence of that fire, or of a later message if it is not known."),
            "stored": _time("When it was stored, or when it was due if that is not known."),
            "due": _time("The fire time of the fire that is sent now, RFC 3339 in UTC."),
            "reason": _text("What is known of it."),
        },
    ),
    "fire_not_done": Advisory(
        "A fire is unfinished for longer than the `X-Done-Within` of its schedule.",
        {
            "schedule": SCHEDULE,
            "seq": SEQUENCE,
            "due": DUE,
            "target": _text("The subject of the fire, shortened."),
            "stored_as": _number("The stream sequence of the fire."),
            "stored": _time("When it was stored, RFC 3339 in UTC."),
            "within": _text("The value of `X-Done-Within`, a duration such as `1h0m0s`."),
            "reason": _text("What is known of it: that it is unfinished, or why no acknowledgement can finish it."),
        },
    ),
    "finish_unknown": Advisory(
        "Nothing can show whether a fire is finished, so the next one waits, or it is not known whether it was done.",
        {
            "schedule": SCHEDULE,
            "seq": SEQUENCE,
            "due": _time(
                "The fire time of the fire that waits, or that was to be done within a time, RFC 3339 in UTC."
            ),
            "reason": _text("Why it cannot be found out."),
        },
    ),
    "fires_dropped": Advisory(
        "A schedule ended while its fires were refused: what came due meanwhile is not stored.",
        {
            "schedule": SCHEDULE,
            "seq": SEQUENCE,
            "since": SINCE,
            "code": REFUSAL,
            "reason": ERROR,
        },
    ),
    "fire_late": Advisory(
        "A fire was stored later than `late_after` after its fire time, or after its schedule if that is later.",
        {
            "schedule": SCHEDULE,
            "due": DUE,
            "stored": _time("When it was stored, RFC 3339 in UTC."),
            "stored_as": _number("Its own stream sequence."),
            "lateness": _text("How late that was, a duration such as `1m30s`."),
        },
    ),
    "purge_failed": Advisory(
        "The server refuses to purge a schedule that is done, or an old version of one; it does not fire again.",
        {
            "schedule": SCHEDULE,
            "seq": _number("The stream sequence up to which its subject was to be purged.", 1),
            "reason": _text("Why the purge is refused."),
        },
    ),
    "expiry_failed": Advisory(
        "The server refuses to remove a message whose `Nats-TTL` has run out: from now on all such messages stay.",
        {
            "seq": _number("Stream sequence of the message whose removal was refused.", 1),
            "reason": _text("Why the removal is refused."),
        },
    ),
    "stream_refused": Advisory(
        "A newer server would refuse this configuration for a stream with schedules.",
        {
            "code": CODE,
            "description": DESCRIPTION,
            "header": _text("The key of the configuration that is wrong; empty if no key is."),
            "value": VALUE,
            "reason": _text("Why it is refused, and what was expected."),
        },
    ),
    "cannot_serve": Advisory(
        "This instance lacks what an owner of the stream needs, such as a permission; an able one owns the stream.",
        {
            "reason": _text("The request that was denied, or the value of a newer version that cannot be read."),
        },
    ),
    "instance_not_firing": Advisory(
        "An instance is alive but does not fire for a stream that it owns; another instance takes it over.",
        {
            "instance": _text("Id of the instance, as `nats-scheduler instances` lists it."),
            "since": _time("The fire time of the oldest missing fire, RFC 3339 in UTC."),
        },
    ),
    "registry_value_ignored": Advisory(
        "A value in the registry's bucket is discarded: another program may have written it.",
        {
            "stream": _text("The stream of the bucket, such as `KV_nats_scheduler`."),
            "key": _text("The key in the bucket."),
            "reason": _text("What is wrong with the value."),
        },
    ),
    SCHEDULE_CHANGED: Advisory(
        "A command, a request or a program changed a schedule; nothing went wrong.",
        {
            "schedule": SCHEDULE,
            "change": {
                "type": "string",
                "enum": [*Kind],
                "description": "What was done: `added`, `edited`, `paused`, `resumed`, `removed`, `fired` or "
                "`backfilled`.",
            },
            "sequence_before": _number("Sequence of the schedule message before; 0 if there was none.", 0),
            "sequence": _number("Sequence of the schedule message now; 0 if there is none.", 0),
            "changed": _time("When it was done, RFC 3339 in UTC."),
            "author": _text("Who did it, as the program or person says; empty if that is not said."),
            "reason": _text("Why, as the author says; empty if that is not said."),
            "fires": _list("The fire times of the fires that were stored, of the first 100 of them.", INSTANT),
            "fires_stored": _number("How many fires were stored.", 0),
            "parts": PARTS,
            "notes": _list("What an operator should know of it, such as a phase that is lost.", {"type": "string"}),
        },
    ),
}
"""All kinds, in the order of the reference page."""

FAILURE_KINDS = frozenset(KINDS) - {SCHEDULE_CHANGED}
"""The kinds that say what went wrong."""


def advisories_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of what is published on `nats_scheduler.advisory.>`."""
    names = {kind: f"{kind.title().replace('_', '')}Advisory" for kind in KINDS}
    references = {f"{ADVISORY_TYPE}.{kind}": f"#/$defs/{name}" for kind, name in names.items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"What is published on {ADVISORY_PREFIX}.<kind>.<stream>.<schedule>",
        "$defs": {name: _schema(kind, name) for kind, name in names.items()},
        "discriminator": {"mapping": references, "propertyName": "type"},
        "oneOf": [{"$ref": reference} for reference in references.values()],
    }


def _schema(kind: str, name: str) -> dict[str, Any]:
    about = KINDS[kind]
    properties = {"stream": STREAM, "type": {"const": f"{ADVISORY_TYPE}.{kind}", "type": "string"}, **about.keys}
    return {
        "title": name,
        "description": about.meaning,
        "type": "object",
        "properties": properties,
        "required": list(properties),
    }
