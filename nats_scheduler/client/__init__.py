"""Schedules from Python programs, over a nats-py connection that they have.

The same program works on servers from 2.10 to 2.15: `Schedules.on` finds out how a stream is served, and each schedule
is spelled so that it fires there.

    schedules = await Schedules.on(nc, "ORDERS")
    await schedules.create("orders.schedules.7", after(timedelta(minutes=5)), b"ping", target="orders.reminder")

Reference: `docs/reference/client.md`. Nothing of the sidecar is imported.
"""

from nats_scheduler.client.cancelling import Cancelled
from nats_scheduler.client.delivered_fire import Delivered, delivered
from nats_scheduler.client.files import Applied, Exported, FileProblem, InvalidFileError, PartlyAppliedError
from nats_scheduler.client.hourly_to_monthly import daily, hourly, monthly, weekly
from nats_scheduler.client.policy_arguments import PolicyArguments
from nats_scheduler.client.schedules import Schedules
from nats_scheduler.client.serving import Serving, Sidecar
from nats_scheduler.client.values import Change, Elsewhere, Fire, Schedule, elsewhere
from nats_scheduler.client.when import InvalidScheduleError, When, after, at, cron, every
from nats_scheduler.control.changes import Author, Kind
from nats_scheduler.control.errors import (
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    NoAnswerError,
    NotFoundError,
    NotPossibleError,
    NotServedError,
    RefusedError,
    RejectedError,
    ReplacesUnfiredWarning,
    SchedulerError,
    StreamNotFoundError,
    UnknownOutcomeError,
)
from nats_scheduler.control.exported import LeftOut
from nats_scheduler.control.plan import Action, Difference, Step
from nats_scheduler.control.plan import Plan as Diff
from nats_scheduler.message.findings import Finding
from nats_scheduler.message.schedule_form import FormArguments, ScheduleForm

__all__ = [
    "Action",
    "AlreadyExistsError",
    "Applied",
    "Author",
    "Cancelled",
    "Change",
    "ConflictError",
    "Delivered",
    "Diff",
    "Difference",
    "Elsewhere",
    "Exported",
    "FileProblem",
    "Finding",
    "Fire",
    "ForbiddenError",
    "FormArguments",
    "InvalidFileError",
    "InvalidScheduleError",
    "Kind",
    "LeftOut",
    "NoAnswerError",
    "NotFoundError",
    "NotPossibleError",
    "NotServedError",
    "PartlyAppliedError",
    "PolicyArguments",
    "RefusedError",
    "RejectedError",
    "ReplacesUnfiredWarning",
    "Schedule",
    "ScheduleForm",
    "SchedulerError",
    "Schedules",
    "Serving",
    "Sidecar",
    "Step",
    "StreamNotFoundError",
    "UnknownOutcomeError",
    "When",
    "after",
    "at",
    "cron",
    "daily",
    "delivered",
    "elsewhere",
    "every",
    "hourly",
    "monthly",
    "weekly",
]
