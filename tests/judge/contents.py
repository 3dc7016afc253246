"""The content of a fire: its body, and its headers in their order.

Its rule: a fire samples its source at one moment between two instants. The earlier one is when it is to be sent or, if
that is earlier, the `window` of the terms before it is stored; the later one is when it is stored. If the source held
nothing at that moment, the content is the schedule's own message.
The identity and the guard are the sidecar's and left out; everything else has to be there, and nothing more.
"""

from collections import defaultdict
from itertools import pairwise
from typing import NamedTuple

from tests.judge.history import EVERYTHING, NEVER, FireSeen, Headers, History, SourceSeen
from tests.judge.patterns import written
from tests.judge.versions import Version

OURS = ("Nats-Msg-Id", "Nats-Expected-")


class Content(NamedTuple):
    """The content of a message that is stored on a target."""

    target: str
    body: bytes
    headers: Headers


class Contents:
    """The allowed contents of the fires of a history."""

    def __init__(self, history: History) -> None:
        self._terms = history.terms
        self._subjects = {operation.schedule for operation in history.operations}
        self._purges = EVERYTHING in self._subjects
        self._sources: dict[str, list[SourceSeen]] = defaultdict(list)
        for seen in sorted(history.sources, key=lambda seen: seen.since):
            self._sources[seen.subject].append(seen)

    def expected(self, version: Version, due: int, fire: FireSeen) -> list[Content]:
        """Return all contents that a fire of this version may have."""
        following = version.pattern.following(due, version.stored_at)
        prefix = "X-" if fire.elsewhere else ""  # the portable headers, which such a schedule has
        appended = [(f"{prefix}Nats-Scheduler", version.schedule)]
        appended.append((f"{prefix}Nats-Schedule-Next", "purge" if following is None else written(following)))
        if version.fire_ttl:
            appended.append(("Nats-TTL", f"{version.fire_ttl}s"))
        said = [(f"X-{name}", value) for name, value in version.pattern.policies.deadline_headers()]
        return [
            Content(version.target, body, (*headers, *appended, *report, *said))
            for body, headers in self._bases(version, due, fire)
            for report in self._reports(version, due, fire)
        ]

    def _reports(self, version: Version, due: int, fire: FireSeen) -> list[Headers]:
        """Return what a fire may say of itself.

        It names the fire before it, or an earlier one if that was stored so shortly before that its instance may not
        have known it. Where fires may be gone, and before the first, it may name none.
        """
        if not version.pattern.policies.report:
            return [()]
        name = "X-Nats-Schedule-X-"
        known_by = fire.stored_at - self._terms.resumes_within - self._terms.window
        before = [one for one in version.fires if one.fire_time is not None and one.fire_time < due]
        sure = [one.fire_time or 0 for one in before if one.stored_at < known_by]
        # What is in another stream is not read back, and so it is as if it was gone after a takeover.
        may_be_gone = fire.elsewhere or self._terms.consumed or bool(version.fire_ttl) or self._lands(version)
        may_be_gone = may_be_gone or self._purges or version.rolls_up
        named = {one.fire_time or 0 for one in before if may_be_gone or (one.fire_time or 0) >= max(sure, default=0)}
        dues = version.dues(due - 1)
        found: list[Headers] = []
        for previous in sorted(named):
            dropped = sum(1 for one in dues if one > previous)
            times = (f"{name}Due", written(due)), (f"{name}Previous", written(previous))
            found.append((*times, (f"{name}Missed", str(dropped))))
        if may_be_gone or not sure:
            found += [((f"{name}Due", written(due)), (f"{name}Missed", str(n))) for n in range(len(dues) + 1)]
        return found

    def _lands(self, version: Version) -> bool:
        return version.target in self._subjects

    def _bases(self, version: Version, due: int, fire: FireSeen) -> list[tuple[bytes, Headers]]:
        own = version.body, version.headers
        if not version.source:
            return [own]
        begin = min(max(version.sent_at(due), version.stored_at), fire.stored_at - self._terms.window)
        begin -= self._terms.clock_ahead
        nothing = SourceSeen(version.source, -NEVER, None)
        states = [nothing, *self._sources[version.source], nothing]
        return [
            own if state.body is None else (state.body, state.headers)
            for state, after in pairwise(states)
            if state.since <= fire.stored_at and (after is nothing or after.since >= begin)
        ]


def said(fire: FireSeen) -> Content:
    """Return the content of a fire."""
    return Content(fire.target, fire.body, tuple(header for header in fire.headers if not header[0].startswith(OURS)))
