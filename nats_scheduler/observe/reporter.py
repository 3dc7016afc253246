"""Report events to the operator: all are counted, important ones are logged, and some are published as advisories.

What is a finding too has its code as a name (`message.findings`). What says something else, such as that a connection
is lost, that a fire was missed or that an owner has changed, has a name of its own.
A mistake of a publisher is one warning and one advisory; an event that occurs a thousand times a second is only
counted, and logged at the level debug.
The number of warnings is limited (`observe.log.Allowance`), and not more advisories are published; counters have no
limit.
Listeners get every event unchanged; `nats-scheduler dev` prints its fires in this way.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nats_scheduler.engine.events import (
    AttemptRefused,
    CalendarApplied,
    CalendarMissing,
    CatchingUp,
    ClockChangeSkipped,
    Event,
    ExpiryFailed,
    FinishUnknown,
    FireConfirmed,
    FireForged,
    FireLostToReplacement,
    FireNotDone,
    FireRefused,
    FiresDropped,
    FiresMissed,
    FiresSkipped,
    FireStored,
    FireTimedOut,
    FireUnknown,
    HeadersMisnamed,
    MessagesExpired,
    PurgeFailed,
    ScheduleAccepted,
    ScheduleEnded,
    ScheduleEndsByAge,
    ScheduleEndsEarly,
    ScheduleLost,
    ScheduleOnlyDropped,
    ScheduleRejected,
    ScheduleReplacedUnfired,
    SchedulesFailing,
    ScheduleSilent,
    StillRefused,
    StreamReady,
    TargetMapped,
)
from nats_scheduler.engine.fire import Fire
from nats_scheduler.message.advisory_messages import Publish, advisory_message, no_advice, rejection_fields
from nats_scheduler.message.findings import Code
from nats_scheduler.message.identity import fire_identity
from nats_scheduler.message.rejection import MAX_KEPT_CHARS, Rejection
from nats_scheduler.observe.activity import Activity
from nats_scheduler.observe.canary_record import CanaryRecord
from nats_scheduler.observe.gauges import Readings
from nats_scheduler.observe.log import Allowance, logger
from nats_scheduler.observe.metrics import Metrics
from nats_scheduler.observe.overload import Overload
from nats_scheduler.observe.times import wall_text
from nats_scheduler.schedule.durations import format_duration
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339

OVERLOAD_ADVICE = "give this process a core of its own, or divide the account's streams among more instances"
"""The advice to an operator against an overload."""

MAX_ATTEMPTS_LOGGED = 1_000
"""The maximum number of debug lines of one kind about the fires of one stream in one second."""

Listener = Callable[[str, Event], None]
_time = format_rfc3339


class Reporter:
    """Turns events into counts, log lines and advisories."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        self._fires = metrics.fires
        self._log = logger()
        self._allowance = Allowance(self._left_out)
        self.advise: Publish = no_advice
        """Publishes an advisory; `no_advice` while there is no connection."""
        self.activity = Activity(metrics.fires)
        """The fires of the last hour, by minute."""
        self._logs_debug = self._log.writes_debug
        self._debug_allowance = Allowance(self._left_out, period=1.0, most=MAX_ATTEMPTS_LOGGED)
        self._listeners: list[Listener] = []
        self._listeners_of: dict[type[Event], list[Listener]] = {}
        """Those that want events of one kind only."""
        self._overload = Overload()
        self.lateness_budget = 0
        """How late (ns) a fire may be sent on purpose: no overload shows in that."""
        self.late_after = SECOND
        """The lateness (ns) from which on a stored fire is reported as late."""

    def listen(self, listener: Listener, kind: type[Event] | None = None) -> None:
        """Call `listener` with every event too, or with those of one kind: each fire has three events."""
        if kind is None:
            self._listeners.append(listener)
        else:
            self._listeners_of.setdefault(kind, []).append(listener)

    def report(self, stream: str, event: Event) -> None:
        """Report an event of a stream."""
        try:
            HANDLERS[type(event)](self, stream, event)
        except Exception as error:
            self._report_broken(stream, event, error)
        if not self._listeners and type(event) not in self._listeners_of:
            return
        for listener in (*self._listeners, *self._listeners_of.get(type(event), ())):
            try:
                listener(stream, event)
            except Exception as error:
                self._report_broken(stream, event, error)

    def _report_broken(self, stream: str, event: Event, error: Exception) -> None:
        """Log that a report failed; the exception must not reach the engine, which reports."""
        if self._allowance.grants("report_failed", stream):
            self.defect("report_failed", error, stream=stream, report=type(event).__name__)

    # -- the sidecar itself --------------------------------------------------------------------------------------

    def show(self, readings: Readings, canary: CanaryRecord | None) -> None:
        """Let the metrics show what is read here, and the canary; it is read in other threads."""
        self.metrics.gauges.readings = readings
        self.metrics.canary.record = canary

    def connected(self, url: str, name: str, version: str, at: int, **outage: float) -> None:
        """Report a connection that exists since `at` (ns), and the outage before it, if there was one."""
        self.metrics.connected.set(1)
        self.metrics.connections.inc()
        self.metrics.connected_at.set(at / SECOND)
        self._log.info("connected", server=url, name=name, version=version, **outage)

    def disconnected(self) -> None:
        """Show in the metrics that there is no connection, and publish no advisory; `problem` logs the reason."""
        self.advise = no_advice
        self.metrics.connected.set(0)

    def requests_limited(self, refused: int, dropped: int, pauses: int, client: str, subject: str) -> None:
        """Report how many requests were too much of late: refused, dropped, and how often nobody listened."""
        self.metrics.requests_refused.inc(refused)
        self.metrics.requests_dropped.inc(dropped)
        shown = client[:MAX_KEPT_CHARS], subject[:MAX_KEPT_CHARS]
        fields = {"refused": refused, "unanswered": dropped, "pauses": pauses}
        self.problem("requests_limited", **fields, client=shown[0], subject=shown[1])

    def failure_not_kept(self) -> None:
        """Count an advisory that no stream keeps."""
        self.metrics.failures_not_kept.inc()

    def defect(self, action: str, error: Exception, **fields: Any) -> None:
        """Log an error of the sidecar itself, with its traceback."""
        self._log.error(action, exc_info=error, **fields)

    def data_folder(self, folder: Path) -> None:
        """Report the folder in which the table of schedules is kept."""
        self._log.info("data_folder", folder=str(folder))

    def data_folder_unusable(self, folder: Path, reason: str) -> None:
        """Report that the table of schedules is in memory, because its folder cannot be used; once, at the start."""
        self._log.warning("data_folder_unusable", folder=str(folder), reason=reason)

    def stream_configured(self, stream: str, *, created: bool) -> None:
        """Report that a stream of `streams_folder` has the configuration of its file."""
        self._log.info("stream_configured", stream=stream, created=created)

    def stream_served(self, stream: str, mode: str, explanation: str, *, alarming: bool) -> None:
        """Report in which mode a stream is served from now on."""
        write = self._log.warning if alarming else self._log.info
        write("stream_served", stream=stream, mode=mode, meaning=explanation)
        self.metrics.serves(stream)

    def stream_left(self, stream: str, mode: str) -> None:
        """Report that a stream is left to other instances, which read it."""
        self.metrics.stops_serving(stream)
        self._log.info("stream_left_to_others", stream=stream, mode=mode)

    def stream_not_served(self, stream: str, reason: str) -> None:
        """Report that a stream is not served any more."""
        self.metrics.stops_serving(stream)
        self._log.warning("stream_not_served", stream=stream, reason=reason)

    def contact_lost(self, stream: str, reason: str) -> None:
        """Report that a stream cannot be followed at the moment."""
        self.problem("contact_lost", stream=stream, reason=reason)

    def stream_refused(self, stream: str, rejection: Rejection) -> None:
        """Report that a stream has the flag, and a configuration with which it cannot have it."""
        fields = {"code": rejection.code, "description": rejection.description, "reason": str(rejection)}
        if self._warn("stream_refused", "", {"stream": stream, **fields}):
            self._advise("stream_refused", stream, **rejection_fields(rejection))

    def schedules_unserved(self, stream: str, subject: str, command: str) -> None:
        """Report that nothing fires the schedules of a stream, because it has no flag."""
        self.problem(Code.SCHEDULES_UNSERVED, stream=stream, schedule=subject, command=command)

    def streams_unserved(self, count: int) -> None:
        """Show how many streams hold schedules and have no flag."""
        self.metrics.unserved.set(count)

    def loop_sampled(self, late: float) -> None:
        """Report how late (s) the event loop ran a timer, and an overload if there is one."""
        self.metrics.loop_lateness.observe(max(late, 0.0))
        found = self._overload.sample(late)
        self.metrics.overloaded.set(self._overload.is_on)
        if found is not None:
            loop_ms, fires_ms = round(found.loop * 1_000), round(found.fires * 1_000)
            self._log.warning("overloaded", loop_late_ms=loop_ms, fires_late_ms=fires_ms, advice=OVERLOAD_ADVICE)

    # -- instances -----------------------------------------------------------------------------------------------

    def instances(self, count: int) -> None:
        """Report how many instances are alive, this one included."""
        self.metrics.instances.set(count)
        self._log.info("instances_alive", count=count)

    def instance_lost(self, name: str, count: int, *, is_absent: bool) -> None:
        """Report that an instance is gone, so that others take over its streams; `is_absent` if it is not connected."""
        self.metrics.instances.set(count)
        reason = "it is not connected any more" if is_absent else "its heartbeats have stopped"
        self.problem("instance_lost", instance=name, alive=count, reason=reason)

    def owner_changed(self, stream: str, *, is_owner: bool, owner: str, before: str, reason: str) -> None:
        """Report that a stream has another owner, which is this instance if it `is_owner`; "" for none.

        `reason` is one of `engine.ownership.owners.Reason`.
        """
        if is_owner:
            self.metrics.took_over(stream, reason)
        else:
            self.metrics.owner.labels(stream).set(0)
        self._log.info("owner_changed", stream=stream, owner=owner, before=before, reason=str(reason))

    def cannot_serve(self, stream: str, reason: str) -> None:
        """Report that this instance lacks what an owner needs; an able instance owns the stream."""
        if self._warn(Code.CANNOT_SERVE, "", {"stream": stream, "reason": reason}):
            self._advise(Code.CANNOT_SERVE, stream, reason=reason)

    def became_able(self, stream: str) -> None:
        """Report that nothing was denied for a while, so that this instance can own the stream again."""
        self._log.info("can_serve_again", stream=stream)

    def registry_value_ignored(self, bucket: str, key: str, reason: str) -> None:
        """Report that a value in the registry's bucket is discarded: another program may have written it."""
        self.problem("registry_value_ignored", key=key, reason=reason)
        self._advise("registry_value_ignored", bucket, key=key, reason=reason)

    def bucket_adapted(self, stream: str, config: Mapping[str, Any], reason: str) -> None:
        """Report that the bucket was created otherwise than elsewhere, so that it fits into the account."""
        storage, max_bytes = config.get("storage"), config.get("max_bytes")
        self.problem("bucket_adapted", stream=stream, storage=storage, max_bytes=max_bytes, reason=reason)

    def instance_not_firing(self, stream: str, instance: str, since: int) -> None:
        """Report that an owner has not fired since the fire time `since` (ns); it is passed over for a while."""
        fields = {"instance": instance, "since": format_rfc3339(since)}
        if self._warn("instance_not_firing", "", {"stream": stream, **fields}):
            self._advise("instance_not_firing", stream, **fields)

    def target_unconsumed(self, stream: str, target: str, since: int, schedule: str, consumer: str) -> None:
        """Report that nobody has consumed a target since an instant (ns); `consumer` would receive it, "" for none."""
        self.metrics.silent.labels(stream, "unconsumed").inc()
        reason = "no consumer of the stream receives it; subscribers of core NATS and direct reads cannot be seen"
        if consumer:
            reason = f"messages wait for consumer {consumer}, which delivers nothing"
        fields = {"schedule": schedule, "target": target[:MAX_KEPT_CHARS], "since": _time(since), "reason": reason}
        self.alert(Code.TARGET_UNCONSUMED, stream, **fields)

    def stream_continued(self, stream: str, schedules: int, through: int) -> None:
        """Report that a stream is read from the sequence `through` on: the file has what is before it."""
        self._log.info("stream_continued", stream=stream, schedules=schedules, through=through)

    def stream_read_anew(self, stream: str, reason: str) -> None:
        """Report why all of a stream is read, although the file has rows of it."""
        self._log.info("stream_read_anew", stream=stream, reason=reason[:MAX_KEPT_CHARS])

    def file_removed(self, folder: Path, reason: str) -> None:
        """Report why a file of schedules that was there is not used."""
        self._log.info("schedule_file_removed", folder=str(folder), reason=reason[:MAX_KEPT_CHARS])

    def file_lost(self, reason: str) -> None:
        """Report that the file of schedules cannot be used any more: they are in memory, and streams are read anew."""
        self.problem("schedule_file_lost", reason=reason[:MAX_KEPT_CHARS])

    # -- schedules and fires -------------------------------------------------------------------------------------

    def _ready(self, stream: str, event: StreamReady) -> None:
        self._log.info("stream_ready", stream=stream, schedules=event.schedules, rejected=event.rejected)

    def _accepted(self, stream: str, event: ScheduleAccepted) -> None:
        self.metrics.accepted.labels(stream).inc()
        if self._logs_debug:
            due = _time(event.due)
            self._log.debug("schedule_accepted", stream=stream, schedule=event.schedule, seq=event.sequence, next=due)

    def _ended(self, stream: str, event: ScheduleEnded) -> None:
        self.metrics.ended.labels(stream, event.ending.name.lower()).inc()
        if self._logs_debug:
            reason = str(event.ending)
            self._log.debug("schedule_ended", stream=stream, schedule=event.schedule, seq=event.sequence, reason=reason)

    def _misnamed(self, stream: str, event: HeadersMisnamed) -> None:
        self.metrics.misnamed.labels(stream).inc()
        for header, reason in event.headers:
            self.alert(
                Code.HEADER_MISNAMED, stream, subject=event.subject, seq=event.sequence, header=header, reason=reason
            )

    def _ends_by_age(self, stream: str, event: ScheduleEndsByAge) -> None:
        ends, reason = _time(event.ends), "max_age of the stream"
        fields = {"stream": stream, "schedule": event.schedule, "seq": event.sequence, "ends": ends, "reason": reason}
        self._warn(Code.SCHEDULE_ENDS_BY_AGE, stream, fields)

    def _stored(self, stream: str, event: FireStored) -> None:
        self._fires.stored(stream, event)
        if self._logs_attempt("fire_stored", stream):
            fields = {"stored_as": event.stored_sequence, "duplicate": event.duplicate}
            self._log.debug("fire_stored", stream=stream, **_attempt(event.fire), **fields)

    def _confirmed(self, stream: str, event: FireConfirmed) -> None:
        late = event.stored_at - event.send_time
        seconds = late / SECOND
        self._fires.read_back(stream, event, seconds)
        if not event.overdue:
            self._overload.record_fire(seconds - self.lateness_budget / SECOND)
        if late >= self.late_after and not event.waited:
            self._late(stream, event)

    def _late(self, stream: str, event: FireConfirmed) -> None:
        """Report a fire that was late; an `@at` that was past when it was stored could not be fired earlier."""
        lateness = event.stored_at - max(event.send_time, event.schedule_stored_at)
        if lateness < self.late_after or not self._allowance.grants("fire_late", stream):
            return  # in a burst of which all are late, the texts would take longer than the fires
        times = {"due": _time(event.fire_time), "stored": _time(event.stored_at), "lateness": format_duration(lateness)}
        fields = {"schedule": event.schedule, "stored_as": event.stored_sequence, **times}
        self._log.warning("fire_late", stream=stream, **fields)
        self._advise("fire_late", stream, **fields)

    def _unknown(self, stream: str, event: FireUnknown) -> None:
        self.metrics.unanswered.labels(stream).inc()
        if self._logs_attempt("fire_unanswered", stream):
            fields = {"reason": event.reason, "retry_after": _wait(event.retry_after)}
            self._log.debug("fire_unanswered", stream=stream, **_attempt(event.fire), **fields)

    def _attempt_refused(self, stream: str, event: AttemptRefused) -> None:
        if self._logs_attempt("attempt_refused", stream):
            fields = {"code": event.code, "reason": event.description, "retry_after": _wait(event.retry_after)}
            self._log.debug("attempt_refused", stream=stream, **_attempt(event.fire), **fields)

    def _logs_attempt(self, action: str, stream: str) -> bool:
        """Return whether the outcome of one more attempt to store a fire is logged."""
        return self._logs_debug and self._debug_allowance.grants(action, stream)

    def _fire_refused(self, stream: str, event: FireRefused) -> None:
        self.metrics.refused.labels(stream, str(event.code)).inc()
        self._fires.of(stream).refused += 1
        fields = {
            "schedule": event.fire.schedule,
            "seq": event.fire.sequence,
            "target": event.fire.target[:MAX_KEPT_CHARS],
            "due": _time(event.fire.fire_time),
            "code": event.code,
            "reason": event.description,
        }
        retry_after = _wait(event.retry_after)
        if self._warn(Code.FIRE_REFUSED, stream, {"stream": stream, "retry_after": retry_after, **fields}):
            self._advise(Code.FIRE_REFUSED, stream, **fields)

    def _catching_up(self, stream: str, event: CatchingUp) -> None:
        self._log.info("catching_up", stream=stream, waiting=event.waiting, per_second=event.rate)

    def _missed(self, stream: str, event: FiresMissed) -> None:
        self.metrics.missed.labels(stream).inc(not event.policy)
        if event.policy or event.made_up is None:
            self._skipped(stream, event, event.dropped, event.policy, while_running=event.while_running)
        elif self._allowance.grants("fires_missed", stream):
            write = self._log.warning if event.while_running else self._log.info
            fields = {"schedule": event.schedule, "seq": event.sequence, "since": _time(event.first)}
            fields |= {"make_up_fire": _time(event.made_up)}
            write("fires_missed", stream=stream, **fields)
            self._advise("fires_missed", stream, **fields)

    def _overlap_skipped(self, stream: str, event: FiresSkipped) -> None:
        self._skipped(stream, event, event.count, f"X-Overlap: {event.overlap}", while_running=False)

    def _skipped(
        self, stream: str, event: FiresMissed | FiresSkipped, dropped: int, policy: str, *, while_running: bool
    ) -> None:
        """Report fires that a policy dropped; the line is a warning if they came due while the sidecar was running."""
        self.metrics.skipped.labels(stream, policy.partition(":")[0]).inc(dropped)
        if self._allowance.grants("fires_skipped", stream):
            write = self._log.warning if while_running else self._log.info
            fields = {"schedule": event.schedule, "seq": event.sequence, "since": _time(event.first)}
            fields |= {"dropped": dropped, "policy": policy}
            write("fires_skipped", stream=stream, **fields)
            self._advise("fires_skipped", stream, **fields)

    def _still_refused(self, stream: str, event: StillRefused) -> None:
        fields = {"code": event.code, "reason": event.description, "schedules": event.count}
        one = {"schedule": event.schedule, "since": _time(event.since)}
        self._warn("fires_still_refused", stream, {"stream": stream, **fields, **one})

    def _failing(self, stream: str, event: SchedulesFailing) -> None:
        self.metrics.failing.labels(stream).set(event.count)

    def _purge_failed(self, stream: str, event: PurgeFailed) -> None:
        self.metrics.purges_failed.labels(stream).inc()
        fields = {"schedule": event.schedule, "seq": event.through, "reason": event.reason}
        if event.refused:
            self.alert("purge_failed", stream, **fields)
        else:
            self._log.debug("purge_failed", stream=stream, **fields)

    def _calendar_missing(self, stream: str, event: CalendarMissing) -> None:
        self.alert(Code.CALENDAR_MISSING, stream, calendar=event.calendar, reason=event.reason, schedules=event.count)

    def _calendar_applied(self, stream: str, event: CalendarApplied) -> None:
        self._log.info("calendar_applied", stream=stream, calendar=event.calendar, schedules=event.count)

    def _expired(self, stream: str, event: MessagesExpired) -> None:
        self.metrics.expired.labels(stream).inc(event.count)
        self._log.debug("messages_expired", stream=stream, count=event.count)

    def _expiry_failed(self, stream: str, event: ExpiryFailed) -> None:
        self.metrics.expiries_failed.labels(stream).inc()
        fields = {"seq": event.sequence, "reason": event.reason}
        if event.refused:
            self.alert("expiry_failed", stream, **fields)
        else:
            self._log.debug("expiry_failed", stream=stream, **fields)

    # -- lines and advisories ------------------------------------------------------------------------------------

    def problem(self, action: str, **fields: Any) -> None:
        """Log a warning that needs the operator's attention."""
        # The limit is not per stream: a client could send any number of stream names.
        self._warn(action, "", fields)

    def _warn(self, kind: str, stream: str, fields: dict[str, Any]) -> bool:
        """Log a warning; return whether it was granted."""
        if is_granted := self._allowance.grants(kind, stream):
            self._log.warning(kind, **fields)
        return is_granted

    def alert(self, kind: str, stream: str, **fields: Any) -> None:
        """Log a warning about a stream, and publish it as an advisory with the same keys."""
        if self._warn(kind, stream, {"stream": stream, **fields}):
            self._advise(kind, stream, **fields)

    def _advise(self, kind: str, stream: str, **fields: Any) -> None:
        self.advise(advisory_message(kind, stream, fields))

    def _left_out(self, kind: str, stream: str, count: int) -> None:
        self._log.warning("lines_suppressed", kind=kind, count=count, **({"stream": stream} if stream else {}))


Handler = Callable[[Reporter, str, Any], None]


def _alert(
    kind: str,
    fields: Callable[[Any], Mapping[str, Any]],
    count: Callable[[Metrics, str, Any], object] = lambda _metrics, _stream, _event: None,
) -> Handler:
    """Return what reports an event of a schedule as a warning and an advisory of a kind, and counts it.

    Both have these fields of the event, beside the schedule and its sequence.
    """

    def report(reporter: Reporter, stream: str, event: Any) -> None:
        count(reporter.metrics, stream, event)
        reporter.alert(kind, stream, schedule=event.schedule, seq=event.sequence, **fields(event))

    return report


HANDLERS: Mapping[type[Event], Handler] = {
    StreamReady: Reporter._ready,
    ScheduleAccepted: Reporter._accepted,
    ScheduleRejected: _alert(
        Code.SCHEDULE_REJECTED,
        lambda event: rejection_fields(event.rejection),
        lambda metrics, stream, event: metrics.rejected.labels(stream, str(event.rejection.code)).inc(),
    ),
    ScheduleEnded: Reporter._ended,
    HeadersMisnamed: Reporter._misnamed,
    ScheduleEndsEarly: _alert(
        Code.SCHEDULE_ENDS_EARLY,
        lambda event: {"due": _time(event.due), "ends": _time(event.ends), "reason": str(event.ending)},
        lambda metrics, stream, event: metrics.ends_early.labels(stream, event.ending.name.lower()).inc(),
    ),
    ScheduleEndsByAge: Reporter._ends_by_age,
    ScheduleLost: _alert("schedule_lost", lambda event: {"due": _time(event.due), "reason": str(event.ending)}),
    ScheduleReplacedUnfired: _alert(
        Code.SCHEDULE_REPLACED_UNFIRED,
        lambda event: {
            "published": _time(event.stored_at),
            "due": _time(event.due),
            "replaced_by": event.replaced_by,
            "replaced": _time(event.replaced_at),
        },
        lambda metrics, stream, _event: metrics.replaced_unfired.labels(stream).inc(),
    ),
    FireLostToReplacement: _alert(
        "fire_lost_to_replacement", lambda event: {"due": _time(event.due), "reason": event.reason[:MAX_KEPT_CHARS]}
    ),
    ScheduleSilent: _alert(
        Code.SCHEDULE_SILENT,
        lambda event: {
            "since": _time(event.since),
            "cause": event.cause.value,
            "reason": event.reason[:MAX_KEPT_CHARS],
        },
        lambda metrics, stream, _event: metrics.silent.labels(stream, "not_stored").inc(),
    ),
    ClockChangeSkipped: _alert(
        "clock_change_skipped",
        lambda event: {
            "time_zone": event.time_zone[:MAX_KEPT_CHARS],
            "skipped": wall_text(event.skipped.first),
            "last_skipped": wall_text(event.skipped.last),
            "clock_from": wall_text(event.skipped.gap_start),
            "clock_to": wall_text(event.skipped.gap_end),
            "due": _time(event.due),
        },
    ),
    ScheduleOnlyDropped: _alert(
        Code.SCHEDULE_ONLY_DROPPED,
        lambda event: {"since": _time(event.since), "dropped": event.dropped, "policy": event.policy},
        lambda metrics, stream, _event: metrics.silent.labels(stream, "dropped").inc(),
    ),
    FireStored: Reporter._stored,
    FireConfirmed: Reporter._confirmed,
    FireUnknown: Reporter._unknown,
    AttemptRefused: Reporter._attempt_refused,
    FireRefused: Reporter._fire_refused,
    FireForged: _alert(
        "fire_forged",
        lambda event: {
            "due": _time(event.fire_time),
            "subject": event.subject[:MAX_KEPT_CHARS],
            "stored_as": event.stored_sequence,
            "reason": event.reason,
        },
        lambda metrics, stream, _event: metrics.forged.labels(stream).inc(),
    ),
    TargetMapped: _alert(
        Code.TARGET_MAPPED,
        lambda event: {"target": event.target[:MAX_KEPT_CHARS], "reason": event.reason[:MAX_KEPT_CHARS]},
    ),
    FiresMissed: Reporter._missed,
    CatchingUp: Reporter._catching_up,
    FiresSkipped: Reporter._overlap_skipped,
    FireTimedOut: _alert(
        "fire_timed_out",
        lambda event: {
            "stored_as": event.unfinished,
            "stored": _time(event.stored_at),
            "due": _time(event.due),
            "reason": event.reason or "it is unfinished",
        },
        lambda metrics, stream, _event: metrics.timed_out.labels(stream).inc(),
    ),
    FireNotDone: _alert(
        "fire_not_done",
        lambda event: {
            "due": _time(event.fire_time),
            "target": event.target[:MAX_KEPT_CHARS],
            "stored_as": event.stored_as,
            "stored": _time(event.stored_at),
            "within": format_duration(event.within),
            "reason": event.reason or "it is unfinished",
        },
        lambda metrics, stream, _event: metrics.not_done.labels(stream).inc(),
    ),
    FinishUnknown: _alert("finish_unknown", lambda event: {"due": _time(event.due), "reason": event.reason}),
    FiresDropped: _alert(
        "fires_dropped",
        lambda event: {"since": _time(event.first), "code": event.code, "reason": event.description},
        lambda metrics, stream, event: metrics.dropped.labels(stream, str(event.code)).inc(),
    ),
    StillRefused: Reporter._still_refused,
    SchedulesFailing: Reporter._failing,
    PurgeFailed: Reporter._purge_failed,
    CalendarMissing: Reporter._calendar_missing,
    CalendarApplied: Reporter._calendar_applied,
    MessagesExpired: Reporter._expired,
    ExpiryFailed: Reporter._expiry_failed,
}
"""What reports each event; a test compares the keys with all events that there are."""


def _attempt(fire: Fire) -> dict[str, Any]:
    """Return the fields that say which fire was sent."""
    identity = fire_identity(fire.schedule, fire.sequence, fire.fire_time, fire.taken)
    return {"schedule": fire.schedule, "identity": identity}


def _wait(duration: int) -> str:
    """Return a wait (ns) as the log has it."""
    return f"{duration / SECOND}s"
