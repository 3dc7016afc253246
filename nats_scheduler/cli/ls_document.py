"""The document that `nats-scheduler ls --json` prints: everything that is known, also what the tables leave out.

Rule: its schedules are those of `observe.documents`, with the same keys as in every other document.
"""

from __future__ import annotations

from collections.abc import Sequence

from nats_scheduler.cli.listing import Listing
from nats_scheduler.cli.session import ServedStream
from nats_scheduler.engine.view import Counts, ListedSchedule
from nats_scheduler.observe.documents import (
    counts_document,
    misnamed_document,
    rejected_document,
    schedule_document,
)
from nats_scheduler.schedule.rfc3339 import format_rfc3339


def listing_document(listing: Listing, shown: Sequence[tuple[ServedStream, ListedSchedule]]) -> dict[str, object]:
    """Return the whole document, with the schedules in `shown`."""
    counts = {one.state.name: Counts() for one in listing.streams}
    for stream, listed in listing.schedules:
        counts[stream.state.name].add(listed.state, listed.kind)
    streams = [
        {
            **listing.sidecars.stream_document(one),
            "failing": listing.failing.count_on(one),
            "schedules": counts_document(counts[one.state.name]),
        }
        for one in listing.streams
    ]
    return {
        "at": format_rfc3339(listing.at),
        "streams": streams,
        "schedules": [schedule_document(one.state.name, one.mode, listed) for one, listed in shown],
        "total": len(listing.schedules),
        "failing": listing.failing.count,
        "failing_unlisted": listing.failing.unlisted,
        "invalid": [rejected_document(one.state.name, one.mode, rejected) for one, rejected in listing.rejected],
        "misnamed": [misnamed_document(one.state.name, noted) for one, noted in listing.misnamed],
        **listing.sidecars.document(),
    }
