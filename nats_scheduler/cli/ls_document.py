"""The document that `nats-scheduler ls --json` prints: everything that is known, also what the tables leave out.

Rule: a field that was once in the document stays there, with the same name and meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nats_scheduler.cli.failing import identity
from nats_scheduler.cli.output import rejection_document
from nats_scheduler.cli.session import ServedStream
from nats_scheduler.engine.events import HeadersMisnamed
from nats_scheduler.engine.flight import Failing
from nats_scheduler.engine.rejections import Rejected
from nats_scheduler.engine.view import ListedSchedule
from nats_scheduler.runtime.modes import EXPLANATIONS
from nats_scheduler.schedule.patterns import Cron
from nats_scheduler.schedule.rfc3339 import format_rfc3339

if TYPE_CHECKING:
    from nats_scheduler.cli.ls import Listing


def listing_document(listing: Listing, shown: Sequence[tuple[ServedStream, ListedSchedule]]) -> dict[str, object]:
    """Return the whole document, with the schedules in `shown`."""
    streams = [
        {
            "stream": one.state.name,
            "mode": one.mode,
            "served": EXPLANATIONS[one.mode],
            "sidecars": listing.sidecars.serving(one),
            "complaint": listing.sidecars.complaint(one) or None,
            "failing": listing.failing.count_on(one),
        }
        for one in listing.streams
    ]
    failing = listing.failing.by_schedule()
    return {
        "at": format_rfc3339(listing.at),
        "streams": streams,
        "schedules": [_schedule(one, listed, failing.get(identity(one, listed))) for one, listed in shown],
        "total": len(listing.schedules),
        "failing": listing.failing.count,
        "failing_unlisted": listing.failing.unlisted,
        "invalid": [_rejected(stream, listed) for stream, listed in listing.rejected],
        "misnamed": [_misnamed(stream, noted) for stream, noted in listing.misnamed],
        **listing.sidecars.document(),
    }


def _schedule(stream: ServedStream, listed: ListedSchedule, why: Failing | None) -> dict[str, object]:
    terms = listed.terms
    return {
        "stream": stream.state.name,
        "subject": listed.subject,
        "pattern": listed.pattern.text,
        "time_zone": zone_of(listed),
        "target": terms.target,
        "source": terms.source,
        "ttl": terms.ttl or None,
        "rollup": rollup_of(listed),
        "next_fire": _next_fire(listed),
        "state": listed.state,
        "failing": None
        if why is None
        else {"code": why.code, "description": why.description, "since": format_rfc3339(why.since)},
        "sequence": listed.sequence,
        "stored": format_rfc3339(listed.stored_at),
        "dialect": terms.dialect.name,
        "mode": stream.mode,
        "fired_by": listed.fired_by,
        "ends": None
        if listed.ends is None
        else {"utc": format_rfc3339(listed.ends), "reason": listed.ended_by and listed.ended_by.name.lower()},
    }


def _next_fire(listed: ListedSchedule) -> dict[str, object] | None:
    fire = listed.next_fire
    if fire is None:
        return None
    return {"utc": format_rfc3339(fire), "local": listed.pattern.format(fire), "nanoseconds": fire}


def _rejected(stream: ServedStream, listed: Rejected) -> dict[str, object]:
    return {
        "stream": stream.state.name,
        "subject": listed.subject,
        "pattern": listed.pattern or None,
        "target": listed.target or None,
        "sequence": listed.sequence,
        "stored": format_rfc3339(listed.stored_at),
        "dialect": listed.dialect.name,
        "mode": stream.mode,
        "error": rejection_document(listed.rejection),
    }


def _misnamed(stream: ServedStream, noted: HeadersMisnamed) -> dict[str, object]:
    return {
        "stream": stream.state.name,
        "subject": noted.subject,
        "sequence": noted.sequence,
        "stored": format_rfc3339(noted.stored_at),
        "headers": [{"header": header, "reason": reason} for header, reason in noted.headers],
    }


def zone_of(listed: ListedSchedule) -> str | None:
    """Return the name of a pattern's time zone, None if it has none of its own."""
    pattern = listed.pattern
    return pattern.zone.name if isinstance(pattern, Cron) and pattern.zone is not None else None


def rollup_of(listed: ListedSchedule) -> str | None:
    """Return what the generated message rolls up, None if it does not."""
    return "sub" if listed.terms.rollup else None
