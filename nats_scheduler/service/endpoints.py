"""All endpoints: the one list from which subscriptions, discovery, schemas and the reference page are made.

To add one: its request and answer in `service.schemas`, a handler, and a line here.
"""

from typing import Any

from nats_scheduler.service import (
    activity,
    failing,
    findings,
    health,
    instances,
    now_schemas,
    past,
    past_schemas,
    patterns,
    recent_fires,
    schedules,
    schemas,
    stream_modes,
    streams,
    timeline,
)
from nats_scheduler.service.endpoint import Endpoint

ENDPOINTS: tuple[Endpoint[Any], ...] = (
    Endpoint(
        "streams.list",
        "The streams that are served: their modes, counts by state, and what fires next.",
        schemas.StreamsRequest,
        schemas.StreamsAnswer,
        streams.list_streams,
    ),
    Endpoint(
        "streams.modes",
        "All streams of the account that carry schedules, served or not, and who fires them.",
        schemas.StreamsRequest,
        schemas.StreamModesAnswer,
        stream_modes.list_modes,
    ),
    Endpoint(
        "schedules.list",
        "A page of schedules, soonest first.",
        schemas.SchedulesRequest,
        schemas.SchedulesAnswer,
        schedules.list_schedules,
    ),
    Endpoint(
        "schedules.get",
        "All that is known of one schedule.",
        schemas.ScheduleRequest,
        schemas.ScheduleAnswer,
        schedules.get,
        schedules.get_alone,
    ),
    Endpoint(
        "schedules.next",
        "The next fires of a schedule, or of a pattern.",
        schemas.NextRequest,
        schemas.NextAnswer,
        patterns.next_fires,
    ),
    Endpoint(
        "check",
        "What a message means that is not published yet, and what a newer server would say of it.",
        schemas.CheckRequest,
        schemas.CheckAnswer,
        patterns.check,
    ),
    Endpoint(
        "explain",
        "In plain words when a pattern fires, and its next fires with the changes of the clock.",
        schemas.ExplainRequest,
        schemas.ExplainAnswer,
        patterns.explain,
    ),
    Endpoint(
        "rejected.list",
        "A page of messages that are rejected as schedules, by subject.",
        schemas.MessagesRequest,
        schemas.RejectedAnswer,
        schedules.list_rejected,
    ),
    Endpoint(
        "misnamed.list",
        "A page of messages with headers that look like those of a schedule and are none, by subject.",
        schemas.MessagesRequest,
        schemas.MisnamedAnswer,
        schedules.list_misnamed,
    ),
    Endpoint(
        "failing.list",
        "The schedules whose fires the server refuses, of those that the sidecar that answers fires.",
        schemas.FailingRequest,
        schemas.FailingAnswer,
        failing.list_alone,
        failing.list_alone,
    ),
    Endpoint(
        "fires.list",
        "The past fires of a schedule, newest first, and how late they were.",
        past_schemas.FiresRequest,
        past_schemas.FiresAnswer,
        past.list_fires,
    ),
    Endpoint(
        "failures.list",
        "What went wrong with schedules, newest first.",
        past_schemas.FailuresRequest,
        past_schemas.FailuresAnswer,
        past.list_failures,
    ),
    Endpoint(
        "activity.list",
        "How many fires were stored in each of the last minutes, and how late, by all instances together.",
        now_schemas.ActivityRequest,
        now_schemas.ActivityAnswer,
        activity.list_minutes,
        activity.list_alone,
    ),
    Endpoint(
        "fires.recent",
        "The last fires of all schedules, newest first, by all instances together.",
        now_schemas.RecentFiresRequest,
        now_schemas.RecentFiresAnswer,
        recent_fires.list_recent,
        recent_fires.list_alone,
    ),
    Endpoint(
        "timeline.list",
        "How many fires come due in each of the next minutes, and the schedules that fire next.",
        now_schemas.TimelineRequest,
        now_schemas.TimelineAnswer,
        timeline.list_minutes,
    ),
    Endpoint(
        "findings.list",
        "What is wrong, why it matters, and what to type: what `nats-scheduler doctor` would find.",
        schemas.NoKeys,
        schemas.FindingsAnswer,
        findings.list_findings,
    ),
    Endpoint(
        "instances.list",
        "The sidecars of the account, and what each of them holds.",
        schemas.InstancesRequest,
        schemas.InstancesAnswer,
        instances.list_instances,
    ),
    Endpoint(
        "health.get",
        "Whether the sidecar that answers is ready, and why not.",
        schemas.NoKeys,
        schemas.HealthAnswer,
        health.get,
        health.get,
    ),
)
