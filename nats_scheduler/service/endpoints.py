"""All endpoints: the one list from which subscriptions, discovery, schemas and the reference page are made.

To add one: its request and answer in `service.schemas`, a handler, and a line here.
"""

from typing import Any

from nats_scheduler.control import edits, fires
from nats_scheduler.service import (
    control,
    instances,
    now,
    past,
    patterns,
    schedules,
    schemas,
    streams,
)
from nats_scheduler.service.control import CONTROL_SUBJECTS, ChangeAnswer, R, admit, changing
from nats_scheduler.service.endpoint import Endpoint

ENDPOINTS: tuple[Endpoint[Any], ...] = (
    Endpoint(
        "streams.list",
        "The streams that are served: their modes, counts by state, and what fires next.",
        schemas.ListRequest,
        schemas.StreamsAnswer,
        streams.list_streams,
    ),
    Endpoint(
        "streams.modes",
        "All streams of the account that carry schedules, served or not, and who fires them.",
        schemas.ListRequest,
        schemas.StreamModesAnswer,
        streams.list_modes,
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
        patterns.NextRequest,
        patterns.NextAnswer,
        patterns.next_fires,
    ),
    Endpoint(
        "check",
        "What a message means that is not published yet, and what a newer server would say of it.",
        patterns.CheckRequest,
        patterns.CheckAnswer,
        patterns.check,
    ),
    Endpoint(
        "explain",
        "In plain words when a pattern fires, and its next fires with the changes of the clock.",
        patterns.ExplainRequest,
        patterns.ExplainAnswer,
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
        schemas.OptionalStreamRequest,
        schemas.FailingAnswer,
        schedules.list_alone,
        schedules.list_alone,
    ),
    Endpoint(
        "fires.list",
        "The past fires of a schedule, newest first, and how late they were.",
        past.FiresRequest,
        past.FiresAnswer,
        past.list_fires,
    ),
    Endpoint(
        "failures.list",
        "What went wrong with schedules, newest first.",
        past.FailuresRequest,
        past.FailuresAnswer,
        past.list_failures,
    ),
    Endpoint(
        "activity.list",
        "How many fires were stored in each of the last minutes, and how late, by all instances together.",
        now.ActivityRequest,
        now.ActivityAnswer,
        now.list_activity,
        now.list_activity_alone,
    ),
    Endpoint(
        "fires.recent",
        "The last fires of all schedules, newest first, by all instances together.",
        now.RecentFiresRequest,
        now.RecentFiresAnswer,
        now.list_recent,
        now.list_recent_alone,
    ),
    Endpoint(
        "timeline.list",
        "How many fires come due in each of the next minutes, and the schedules that fire next.",
        now.TimelineRequest,
        now.TimelineAnswer,
        now.list_timeline,
    ),
    Endpoint(
        "findings.list",
        "What is wrong, why it matters, and what to type: what `nats-scheduler doctor` would find.",
        schemas.NoKeys,
        schemas.FindingsAnswer,
        instances.list_findings,
        instances.list_findings,
    ),
    Endpoint(
        "instances.list",
        "The sidecars of the account, and what each of them holds.",
        schemas.ListRequest,
        schemas.InstancesAnswer,
        instances.list_instances,
    ),
    Endpoint(
        "health.get",
        "Whether the sidecar that answers is ready, and why not.",
        schemas.NoKeys,
        schemas.HealthAnswer,
        instances.get,
        instances.get,
    ),
)


# -- endpoints that change schedules ---------------------------------------------------------------------------------


def _endpoint(name: str, summary: str, request: type[R], operation: control.Operation) -> Endpoint[R]:
    return Endpoint(name, summary, request, ChangeAnswer, changing(operation), prefix=CONTROL_SUBJECTS, admit=admit)


CONTROL_ENDPOINTS: tuple[Endpoint[Any], ...] = (
    _endpoint(
        "schedules.pause",
        "Pause a schedule: it keeps its headers, its body and its phase, and fires nothing until it is resumed.",
        control.ChangeRequest,
        edits.pause,
    ),
    _endpoint(
        "schedules.resume",
        "Resume a paused schedule: what came due meanwhile is skipped.",
        control.ResumeRequest,
        edits.resume,
    ),
    _endpoint(
        "schedules.fire",
        "Store one fire of a schedule now, paused or not, beside those that come due.",
        control.FireRequest,
        control.fire,
    ),
    _endpoint(
        "schedules.backfill",
        "Store the past fires of a schedule that are missing.",
        control.BackfillRequest,
        fires.backfill,
    ),
    _endpoint(
        "schedules.add",
        "Store a new schedule; the same one again changes nothing.",
        control.AddRequest,
        edits.add,
    ),
    _endpoint(
        "schedules.edit",
        "Change headers or the body of a schedule, and nothing else.",
        control.EditRequest,
        edits.edit,
    ),
    _endpoint(
        "schedules.remove",
        "Remove a schedule, with its older versions.",
        control.ChangeRequest,
        edits.remove,
    ),
)
