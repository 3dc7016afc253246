"""The micro service `nats-scheduler`: the one list of endpoints, and what is made of it: subscriptions, and schemas.

The rule: what only reads and what changes something have different subjects, so that permissions can distinguish
them, and different places, so that neither has to wait for the other.
To add an endpoint: its request and answer in `service.schemas`, a handler, and a line here.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter

from nats_scheduler.control import edits, fire_requests, pausing
from nats_scheduler.control.errors import ForbiddenError
from nats_scheduler.service import (
    calendar_endpoints,
    change_endpoints,
    content_answers,
    now,
    past_answers,
    pattern_endpoints,
    schedule_endpoints,
    schemas,
    stream_endpoints,
)
from nats_scheduler.service.change_endpoints import CONTROL_SUBJECTS, ChangeAnswer, R, admit, changing
from nats_scheduler.service.endpoint import AnsweredBy, Asked, Document, Endpoint, Handler
from nats_scheduler.service.micro import FORBIDDEN, CountedEndpoint, Limited, MicroService, Responder, ServiceError
from nats_scheduler.service.rules import MAX_BY_A_RULE, MAX_BY_A_RULE_OF_ONE, MAX_BY_A_RULE_WAITING, Rule
from nats_scheduler.service.shares import Budget, RequestPlaces
from nats_scheduler.version import VERSION

ENDPOINTS: tuple[Endpoint[Any], ...] = (
    Endpoint(
        "streams.list",
        "The streams that are served: their modes, counts by state, and what fires next.",
        schemas.StreamsRequest,
        schemas.StreamsAnswer,
        stream_endpoints.list_streams,
        answers=AnsweredBy.OWNER,
    ),
    Endpoint(
        "streams.modes",
        "All streams of the account that carry schedules, served or not, and who fires them.",
        schemas.ListRequest,
        schemas.StreamModesAnswer,
        stream_endpoints.list_modes,
    ),
    Endpoint(
        "schedules.list",
        "A page of schedules, soonest first.",
        schemas.SchedulesRequest,
        schemas.SchedulesAnswer,
        schedule_endpoints.list_schedules,
        answers=AnsweredBy.OWNER,
    ),
    Endpoint(
        "schedules.get",
        "All that is known of one schedule.",
        schemas.ScheduleRequest,
        schemas.ScheduleAnswer,
        schedule_endpoints.get,
        answers=AnsweredBy.OWNER,
    ),
    Endpoint(
        "schedules.next",
        "The next fires of a schedule, or of a pattern.",
        pattern_endpoints.NextRequest,
        pattern_endpoints.NextAnswer,
        pattern_endpoints.next_fires,
        answers=AnsweredBy.READER,
    ),
    Endpoint(
        "check",
        "What a message means that is not published yet, and what a newer server would say of it.",
        pattern_endpoints.CheckRequest,
        pattern_endpoints.CheckAnswer,
        pattern_endpoints.check,
        answers=AnsweredBy.READER,
    ),
    Endpoint(
        "explain",
        "In plain words when a pattern fires, and its next fires with the changes of the clock.",
        pattern_endpoints.ExplainRequest,
        pattern_endpoints.ExplainAnswer,
        pattern_endpoints.explain,
    ),
    Endpoint(
        "rejected.list",
        "A page of messages that are rejected as schedules, by subject.",
        schemas.MessagesRequest,
        schemas.RejectedAnswer,
        schedule_endpoints.list_rejected,
        answers=AnsweredBy.READER,
    ),
    Endpoint(
        "misnamed.list",
        "A page of messages with headers that look like those of a schedule and are none, by subject.",
        schemas.MessagesRequest,
        schemas.MisnamedAnswer,
        schedule_endpoints.list_misnamed,
        answers=AnsweredBy.READER,
    ),
    Endpoint(
        "fires.list",
        "The past fires of a schedule, newest first, and how late they were.",
        past_answers.FiresRequest,
        past_answers.FiresAnswer,
        past_answers.list_fires,
    ),
    Endpoint(
        "content.get",
        "The body and all headers of a schedule, or of one of its fires, unless `show_contents` is off.",
        content_answers.ContentRequest,
        content_answers.ContentAnswer,
        content_answers.get_content,
        answers=AnsweredBy.READER,
        admit=content_answers.admit,
    ),
    Endpoint(
        "failures.list",
        "What went wrong with schedules, newest first.",
        past_answers.FailuresRequest,
        past_answers.FailuresAnswer,
        past_answers.list_failures,
    ),
    Endpoint(
        "changes.list",
        "Who changed which schedule by commands, requests or programs, when and why, newest first.",
        past_answers.ChangesRequest,
        past_answers.ChangesAnswer,
        past_answers.list_changes,
    ),
    Endpoint(
        "activity.list",
        "How many fires were stored in each of the last minutes, and how late, by all instances together.",
        now.ActivityRequest,
        now.ActivityAnswer,
        now.list_activity,
        is_for_one=True,
    ),
    Endpoint(
        "fires.recent",
        "The last fires of all schedules, newest first, by all instances together.",
        now.RecentFiresRequest,
        now.RecentFiresAnswer,
        now.list_recent,
        is_for_one=True,
    ),
    Endpoint(
        "timeline.list",
        "How many fires come due in each of the next minutes, and the schedules that fire next.",
        now.TimelineRequest,
        now.TimelineAnswer,
        now.list_timeline,
        answers=AnsweredBy.READER,
    ),
    Endpoint(
        "findings.list",
        "What is wrong, why it matters, and what to type: what `nats-scheduler doctor` would find.",
        schemas.NoKeys,
        schemas.FindingsAnswer,
        stream_endpoints.list_findings,
        is_for_one=True,
    ),
    Endpoint(
        "calendars.list",
        "The calendars of the account, and their days that are to come.",
        schemas.ListRequest,
        calendar_endpoints.CalendarsAnswer,
        calendar_endpoints.list_calendars,
    ),
    Endpoint(
        "instances.list",
        "The sidecars of the account, and which streams each of them owns and stands by.",
        schemas.ListRequest,
        schemas.InstancesAnswer,
        stream_endpoints.list_instances,
    ),
    Endpoint(
        "health.get",
        "Whether the sidecar that answers is ready, and why not.",
        schemas.NoKeys,
        schemas.HealthAnswer,
        stream_endpoints.get,
        is_for_one=True,
    ),
)


# -- endpoints that change schedules ---------------------------------------------------------------------------------


def _endpoint(name: str, summary: str, request: type[R], operation: change_endpoints.Operation) -> Endpoint[R]:
    handle: Handler[R] = changing(name.rpartition(".")[2], operation)
    return Endpoint(name, summary, request, ChangeAnswer, handle, prefix=CONTROL_SUBJECTS, admit=admit)


CONTROL_ENDPOINTS: tuple[Endpoint[Any], ...] = (
    _endpoint(
        "schedules.pause",
        "Pause a schedule: it keeps its headers, its body and its phase, and fires nothing until it is resumed.",
        change_endpoints.ChangeRequest,
        pausing.pause,
    ),
    _endpoint(
        "schedules.resume",
        "Resume a paused schedule: what came due meanwhile is skipped.",
        change_endpoints.ResumeRequest,
        pausing.resume,
    ),
    _endpoint(
        "schedules.fire",
        "Store one fire of a schedule now, paused or not, beside those that come due.",
        change_endpoints.FireRequest,
        change_endpoints.fire,
    ),
    _endpoint(
        "schedules.backfill",
        "Store the past fires of a schedule that are missing.",
        change_endpoints.BackfillRequest,
        fire_requests.backfill,
    ),
    _endpoint(
        "schedules.add",
        "Store a new schedule; the same one again changes nothing.",
        change_endpoints.AddRequest,
        edits.add,
    ),
    _endpoint(
        "schedules.edit",
        "Change headers or the body of a schedule, and nothing else.",
        change_endpoints.EditRequest,
        edits.edit,
    ),
    _endpoint(
        "schedules.remove",
        "Remove a schedule, with its older versions.",
        change_endpoints.ChangeRequest,
        edits.remove,
    ),
)

ALL_ENDPOINTS: tuple[Endpoint[Any], ...] = (*ENDPOINTS, *CONTROL_ENDPOINTS)

ENDPOINTS_WITHIN_RULES = tuple(one for one in ENDPOINTS if one.name in ("schedules.list", "schedules.get"))
"""The endpoints that only read, and that a requester with a rule can ask about the schedules of the rule."""

SERVICE_NAME = "nats-scheduler"

MAX_READING, MAX_READING_OF_ONE, MAX_READING_WAITING = 32, 16, 256
"""Requests that only read in work at once, those of one client (a status page has 12), and those that wait."""

MAX_CHANGING, MAX_CHANGING_OF_ONE, MAX_CHANGING_WAITING = 16, 8, 256
"""The same for requests that change something."""

MAX_RESERVED, MAX_RESERVED_OF_ONE, MAX_RESERVED_WAITING = 8, 2, 64
"""The same for the requests of `RESERVED`."""

RESERVED = ("health.get",)
"""The endpoints with places and process time of their own, so that monitoring is answered whatever else is asked."""

TIME_SHARE, TIME_SHARE_OF_ONE = 0.4, 0.2
"""Process time that requests may take of a second outside slices: all, and those of one client or one team."""

RESERVED_TIME_SHARE, RESERVED_TIME_SHARE_OF_ONE = 0.1, 0.02
"""The same for the requests of `RESERVED`."""

DESCRIPTION = "message schedules (ADR-51) for streams of this account"


async def serve(
    asked: Asked,
    defect: Callable[[Exception], None],
    limited: Limited,
    thread_seconds: Callable[[], float],
) -> None:
    """Answer requests until cancelled; `defect` takes errors of the service itself, `limited` what was too much.

    `thread_seconds` returns the process time (s) of this thread.
    """
    identity = {"name": SERVICE_NAME, "id": asked.instance, "version": VERSION}
    budget, kept = Budget(TIME_SHARE, TIME_SHARE_OF_ONE), Budget(RESERVED_TIME_SHARE, RESERVED_TIME_SHARE_OF_ONE)
    reading = RequestPlaces(MAX_READING, MAX_READING_OF_ONE, MAX_READING_WAITING, budget)
    changing = RequestPlaces(MAX_CHANGING, MAX_CHANGING_OF_ONE, MAX_CHANGING_WAITING, budget)
    reserved = RequestPlaces(MAX_RESERVED, MAX_RESERVED_OF_ONE, MAX_RESERVED_WAITING, kept)
    allowed = {"allow_control": "true" if asked.allows_control else "false"}
    served = [_served(one, asked, reserved if one.name in RESERVED else reading, {}) for one in ENDPOINTS]
    served += [_served(one, asked, changing, allowed) for one in CONTROL_ENDPOINTS]
    served += _served_by_rules(asked, budget)

    def process_seconds() -> float:
        return thread_seconds() - asked.turns.sliced_seconds

    async with asked.watched_streams.opened():
        service = MicroService(
            asked.connection, identity, DESCRIPTION, served, asked.now, defect, limited, process_seconds
        )
        await service.serve()


def _within_a_rule(one: Endpoint[Any]) -> Endpoint[Any]:
    """Return an endpoint that only reads as it is for a requester with a rule: it shows the schedules of the rule."""

    async def handle(asked: Asked, request: Any) -> Document:
        assert asked.rule is not None
        if isinstance(request, schemas.SchedulesRequest):
            subjects = asked.rule.within(request.filter)
            request = request.model_copy(update={"filter": subjects})
        else:
            subjects = request.subject
        try:
            asked.rule.check_place(request.stream, subjects)
        except ForbiddenError as error:
            raise ServiceError(FORBIDDEN, str(error)) from None
        return await one.handled(asked, request)

    return replace(one, handle=handle)


def _served_by_rules(asked: Asked, budget: Budget) -> Iterator[CountedEndpoint]:
    """Yield the endpoints for those with a rule, once for each rule, on subjects of its own."""
    schedules = [subject for rule in asked.control_rules for subject in rule.subjects]
    for allowed in asked.control_rules:
        under = asked.under(Rule(allowed, schedules, asyncio.get_running_loop().time))
        places = RequestPlaces(
            MAX_BY_A_RULE, MAX_BY_A_RULE_OF_ONE, MAX_BY_A_RULE_WAITING, budget, allowed.name.encode()
        )
        for one in (*CONTROL_ENDPOINTS, *map(_within_a_rule, ENDPOINTS_WITHIN_RULES)):
            prefix = f"{CONTROL_SUBJECTS}.for.{allowed.name}"
            own = replace(one, prefix=prefix, admit=admit, is_for_one=False, answers=AnsweredBy.ANY)
            yield _served(own, under, places, {"rule": allowed.name}, f"-for-{allowed.name}")


def _answering_one(one: Endpoint[Any], asked: Asked) -> Responder | None:
    """Return what answers a request for exactly this instance; None if there is none."""
    if one.is_for_one:
        return one.answering(asked.alone())
    return one.answering(asked.relayed()) if one.answers is not AnsweredBy.ANY else None


def _served(
    one: Endpoint[Any], asked: Asked, places: RequestPlaces, metadata: Mapping[str, str], suffix: str = ""
) -> CountedEndpoint:
    return CountedEndpoint(
        one.name.replace(".", "-") + suffix,
        one.subject,
        places,
        one.answering(asked),
        _answering_one(one, asked),
        metadata,
    )


def service_schema() -> dict[str, Any]:
    """Return the schemas (2020-12): for each subject a request and an answer, whose parts are in `$defs`."""
    adapters: list[tuple[Any, Any, TypeAdapter[Any]]] = []
    for one in ALL_ENDPOINTS:
        adapters.append((one.name, "validation", TypeAdapter(one.request)))
        adapters.append((f"{one.name} answer", "validation", TypeAdapter(one.answer)))
    found, rest = TypeAdapter.json_schemas(adapters)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Requests to the micro service {SERVICE_NAME}, and their answers",
        "endpoints": {
            one.name: {
                "subject": one.subject,
                "description": one.summary,
                "request": found[one.name, "validation"],
                "answer": found[f"{one.name} answer", "validation"],
            }
            for one in ALL_ENDPOINTS
        },
        "$defs": rest.get("$defs", {}),
    }
