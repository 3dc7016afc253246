"""The endpoints that change schedules; everything else about endpoints is as `service.endpoints` says."""

from typing import Any

from nats_scheduler.service import control, control_schemas, file_schemas, schedule_files
from nats_scheduler.service.control import CONTROL_SUBJECTS, R, admit, changing
from nats_scheduler.service.control_schemas import ChangeAnswer
from nats_scheduler.service.endpoint import Endpoint


def _endpoint(name: str, summary: str, request: type[R], operation: control.Operation[R]) -> Endpoint[R]:
    return Endpoint(name, summary, request, ChangeAnswer, changing(operation), prefix=CONTROL_SUBJECTS, admit=admit)


CONTROL_ENDPOINTS: tuple[Endpoint[Any], ...] = (
    _endpoint(
        "schedules.pause",
        "Pause a schedule: it keeps its headers, its body and its phase, and fires nothing until it is resumed.",
        control_schemas.VersionRequest,
        control.pause,
    ),
    _endpoint(
        "schedules.resume",
        "Resume a paused schedule: what came due meanwhile is skipped.",
        control_schemas.ResumeRequest,
        control.resume,
    ),
    _endpoint(
        "schedules.fire",
        "Store one fire of a schedule now, paused or not, beside those that come due.",
        control_schemas.FireRequest,
        control.fire,
    ),
    _endpoint(
        "schedules.backfill",
        "Store the past fires of a schedule that are missing.",
        control_schemas.BackfillRequest,
        control.backfill,
    ),
    _endpoint(
        "schedules.add",
        "Store a new schedule; the same one again changes nothing.",
        control_schemas.AddRequest,
        control.add,
    ),
    _endpoint(
        "schedules.edit",
        "Change headers or the body of a schedule, and nothing else.",
        control_schemas.EditRequest,
        control.edit,
    ),
    _endpoint(
        "schedules.remove",
        "Remove a schedule, with its older versions.",
        control_schemas.VersionRequest,
        control.remove,
    ),
    Endpoint(
        "schedules.export",
        "Schedules of a stream as a document, with their bodies.",
        file_schemas.ExportRequest,
        file_schemas.ExportAnswer,
        schedule_files.export,
        prefix=CONTROL_SUBJECTS,
        admit=admit,
    ),
    Endpoint(
        "schedules.diff",
        "Compare documents of schedules with their streams, and change nothing.",
        file_schemas.DiffRequest,
        file_schemas.DiffAnswer,
        schedule_files.diff,
        prefix=CONTROL_SUBJECTS,
        admit=admit,
    ),
    Endpoint(
        "schedules.apply",
        "Make the schedules of streams those of documents; again, it does what is left.",
        file_schemas.ApplyRequest,
        file_schemas.ApplyAnswer,
        schedule_files.apply,
        prefix=CONTROL_SUBJECTS,
        admit=admit,
    ),
)
