"""The endpoints about instances: who is there and holds what, whether one is ready, and what is wrong (the doctor).

The rule: what is wrong is the doctor's report, as far as this sidecar can examine it by itself.
Cost: for a list, two requests to the server for each instance, one for each stream; for what is wrong, see
`doctor.sidecar`: a request within five minutes after an examination costs nothing.
"""

import json
from collections.abc import Sequence
from typing import TypeVar

from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.service.endpoint import (
    Asked,
    Document,
    name_cursor,
    read_name_cursor,
    with_items,
)
from nats_scheduler.service.micro import UNAVAILABLE, ServiceError
from nats_scheduler.service.port import Fleet, Instance
from nats_scheduler.service.schemas import HealthAnswer, InstanceDocument, InstancesDocument, ListRequest, NoKeys


async def list_instances(asked: Asked, request: ListRequest) -> Document:
    """Return a page of instances, by id."""
    after = read_name_cursor(request.cursor)
    try:
        fleet = await asked.fleet()
    except JetStreamError as error:
        raise ServiceError(UNAVAILABLE, f"the registry's bucket cannot be read: {error}") from None
    found = sorted((one for one in fleet.instances if one.name > after), key=lambda one: one.name)
    wanted = found[: request.limit]
    items = await asked.encoded(wanted, lambda one: instance_document(one, fleet.at))
    answer = {
        **asked.head(fleet.at),
        "cursor": name_cursor(wanted[len(items) - 1].name) if len(items) < len(found) else None,
    }
    return with_items(answer, "instances", items)


def instances_document(fleet: Fleet) -> InstancesDocument:
    """Return all instances, by id."""
    by_id = sorted(fleet.instances, key=lambda one: one.name)
    return {"at": format_rfc3339(fleet.at), "instances": [instance_document(one, fleet.at) for one in by_id]}


def instance_document(one: Instance, at: int) -> InstanceDocument:
    """Return an instance, as it is at an instant (ns) of the server's clock."""
    return {
        "id": one.name,
        "state": one.state(at),
        "since": None if one.since is None else format_rfc3339(one.since),
        "last_heartbeat": None if one.heartbeat_at is None else format_rfc3339(one.heartbeat_at),
        "age_nanoseconds": None if one.heartbeat_at is None else max(at - one.heartbeat_at, 0),
        "serves": None if one.serves is None else list(one.serves),
        "unable": [{"stream": key.partition(".")[2], "reason": why} for key, why in sorted(one.unable.items())],
        "holds": list(one.parts),
    }


MAX_REASONS = 100
"""Reasons that are listed: one for each stream that is not ready, and there may be thousands of streams."""


async def get(asked: Asked, _request: NoKeys) -> Document:
    """Return whether this instance is ready, and why not."""
    reasons = asked.not_ready()
    answer: HealthAnswer = {
        **asked.head(),
        "ready": not reasons,
        "reasons": reasons[:MAX_REASONS],
        "notes": asked.notes()[:MAX_REASONS],
    }
    return answer


T = TypeVar("T")


async def list_findings(asked: Asked, _request: NoKeys) -> Document:
    """Return what is wrong, worst first, as many findings as fit into an answer."""
    examination = await asked.examination(asked.turns)
    report, room = examination.report, asked.room
    head = {
        **asked.head(examination.at),
        "worst": report["worst"],
        "unlisted": _fitting(report["unlisted"], room // 4),
        "counts": report["counts"],
        "unexamined": _fitting(examination.unexamined, room // 4),
    }
    left = room - len(json.dumps(head))
    items = await asked.encoded(report["findings"], dict, left)
    return with_items({**head, "omitted": len(report["findings"]) - len(items)}, "findings", items)


def _fitting(rows: Sequence[T], room: int) -> Sequence[T]:
    """Return the first rows that fit into so many bytes as JSON: there may be some for each of a thousand streams."""
    for number, row in enumerate(rows):
        room -= len(json.dumps(row)) + 2
        if room < 0:
            return rows[:number]
    return rows
