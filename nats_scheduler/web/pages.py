"""The pages, and what is asked for each.

The rules: a page asks all its questions at once, and shows what is missing beside what is there. The same address
answers with the whole page, or, to a request with the header `X-Fragment`, with the parts that change.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from gzip import compress
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from nats_scheduler.observe.advisories import FAILURE_KINDS
from nats_scheduler.observe.documents import (
    FireDocument,
    MarkedFireDocument,
    ScheduleDocument,
    SkippedDocument,
    due_of,
    instant_of,
)
from nats_scheduler.observe.outlook import OutlookDocument
from nats_scheduler.observe.texts import clock_change_text, takeover_text, what_happened
from nats_scheduler.schedule.instants import DAY
from nats_scheduler.schedule.rfc3339 import format_rfc3339, parse_rfc3339
from nats_scheduler.schedule.zones import UTC
from nats_scheduler.service import sidecar_answers
from nats_scheduler.service.calendar_endpoints import MAX_COMING
from nats_scheduler.service.now import MAX_MINUTES_AHEAD, TimelineAnswer
from nats_scheduler.service.past_answers import ChangesAnswer
from nats_scheduler.service.pattern_endpoints import ExplainAnswer, NextAnswer
from nats_scheduler.service.schemas import HealthAnswer, InstanceDocument, InstancesAnswer, StreamsAnswer
from nats_scheduler.service.searches import FIELDS, search_keys
from nats_scheduler.service.sidecar_answers import NOTHING, Answers, AnswerState
from nats_scheduler.service.stream_owners import ownership_of
from nats_scheduler.service.verdict import Known, grouped, troubled_first, verdict
from nats_scheduler.version import VERSION
from nats_scheduler.web.attempts import Attempts
from nats_scheduler.web.charts import bar_chart, day_of, hour_of
from nats_scheduler.web.content_page import content_values
from nats_scheduler.web.control_check import refusal_of
from nats_scheduler.web.earlier_versions import EarlierVersion, earlier_versions
from nats_scheduler.web.reader_zone import ZONE_COOKIE, ZONE_SECONDS, reader_zone, zone_called, zone_cookie
from nats_scheduler.web.rendering import address, render, sequence_in, templates
from nats_scheduler.web.request_checks import (
    CONTROL_COOKIE,
    LOGIN,
    SESSION_SECONDS,
    Controllers,
    Sessions,
    too_many_attempts,
)

# -- which instance owns each stream ---------------------------------------------------------------------------------

Values = Mapping[str, Any]
"""The values that a template shows, by name."""

Query = Mapping[str, str]
"""The query in the address of a page: values by name."""

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
COLOURS = 6


def letters_of(instances: Sequence[InstanceDocument]) -> dict[str, tuple[str, str]]:
    """Return a letter for each instance and the class of its colour, by id."""
    return {one["id"]: (LETTERS[n % len(LETTERS)], f"c{n % COLOURS}") for n, one in enumerate(instances)}


# -- one schedule: its next fires, and what the sidecars say about it ------------------------------------------------


@dataclass(frozen=True, slots=True)
class NextRow:
    """One of the next fires, or times that the clock skips."""

    instant: int | None
    """The instant (ns) at which it fires; None for what is skipped."""
    local: str
    """The time in the zone of the schedule, with its offset; "" without a zone."""
    remark: str
    """The effect of a change of the clock on it."""


def next_rows(following: NextAnswer | None, explained: ExplainAnswer | None) -> list[NextRow]:
    """Return the next fires of a schedule in their order, with the times that are skipped between them.

    The fires are those of the schedule; the remarks are those of its pattern, which fires at the same times.
    """
    if following is None:
        return []
    marks: dict[int, MarkedFireDocument] = {}
    skipped: Sequence[SkippedDocument] = ()
    if explained is not None and explained["kind"] == "cron":
        marks = {fire["nanoseconds"]: fire for fire in explained["fires"]}
        skipped = explained["skipped"]
    return _rows(following["time_zone"], following["fires"], marks, skipped)


def rows_ahead(ahead: OutlookDocument | ExplainAnswer) -> list[NextRow]:
    """Return the next fires of a schedule that is not stored yet, with the times that are skipped between them."""
    marks = {fire["nanoseconds"]: fire for fire in ahead["fires"]}
    return _rows(ahead["time_zone"], ahead["fires"], marks, ahead["skipped"])


def _rows(
    zone: str | None,
    fires: Sequence[FireDocument],
    marks: Mapping[int, MarkedFireDocument],
    skipped: Sequence[SkippedDocument],
) -> list[NextRow]:
    rows = [
        (
            fire["local"],
            NextRow(fire["nanoseconds"], fire["local"] if zone else "", _remark(marks.get(fire["nanoseconds"]))),
        )
        for fire in fires
    ]
    last = rows[-1][0] if rows else ""
    rows += [(one["first"], _skipped_row(one)) for one in skipped if one["first"] < last]
    return [row for _, row in sorted(rows, key=lambda one: one[0][:19])]


def _remark(fire: MarkedFireDocument | None) -> str:
    return "" if fire is None else clock_change_text(fire["clock_change"], fire["clock_shift_seconds"] or 0)


def _skipped_row(skipped: SkippedDocument) -> NextRow:
    times = skipped["first"] if skipped["first"] == skipped["last"] else f"{skipped['first']} to {skipped['last']}"
    remark = f"skipped: the clock goes from {skipped['clock_from']} to {skipped['clock_to']}"
    return NextRow(None, times, remark.replace("T", " "))


STATES = (
    "waiting",
    "overdue",
    "failing",
    "unfinished",
    "fired",
    "cancelled",
    "expiring",
    "no_calendar",
    "excepted",
    "ended",
    "paused",
)
KINDS = ("at", "every", "cron")
ORDERS = {"": "next fire", "subject": "subject", "target": "target"}
"""The orders of the list of schedules, as they are in its address, and the words for them."""

ALL_STREAMS = {"limit": 1000}
"""The request for the streams that the verdict is about: as many as one answer has."""

MAX_INSTANCES_ASKED = 16
"""Instances that are asked one by one whether they are ready."""

INSTANCE_ID = re.compile(r"[A-Za-z0-9_-]+")

PAGE_LENGTH = 50
"""Schedules, fires or calendars on a page."""

LIVE_PART = b'<div id="live"'
"""The beginning of the main part of a page that changes (`fragment.html`); what is before it changes each second."""

COMPRESSION = 5
"""The level at which answers are compressed: half a millisecond for an overview."""

MAX_DAY_FIRES = 1_000
"""The most fires of which the picture of a day is made."""

MAX_UNTIL = 1 << 62
"""The latest time (ns) that a search or a range may name, in the year 2116."""

MAX_TIME_CHARS = 40
"""The largest number of characters of a wrong time that are shown."""

MAX_LOGIN_BYTES = 4096
OK, NOT_FOUND = 200, 404


class Pages:
    """The handlers of all pages."""

    def __init__(
        self,
        source: Answers,
        sessions: Sessions | None,
        controllers: Controllers | None,
        attempts: Attempts,
        prefix: str = "",
    ) -> None:
        """Show what `source` answers; addresses and cookies are those of the paths that begin with `prefix`."""
        self._cookie_path = prefix or "/"
        self._source = source
        self._attempts = attempts
        self._controllers = controllers
        control = None if controllers is None else controllers.sessions
        self._logins = [one for one in (control, sessions) if one is not None]
        self._templates = templates(prefix)

    def handlers(self) -> dict[str, Callable[[Request], Awaitable[Response]]]:
        """Return the handler of each page, by its name."""
        pages = {
            "overview": ("Overview", self._now_and_next),
            "schedules": ("Schedules", self._listed),
            "schedule": ("Schedule", self._story),
            "history": ("Past fires", self._history),
            "content": ("Content", self._content),
            "streams": ("Streams", self._streams),
            "fires": ("Last fires", self._fires),
            "failures": ("What went wrong", self._failures),
            "instances": ("Instances", self._instances),
            "findings": ("Doctor", self._findings),
            "rejected": ("Rejected messages", self._rejected),
            "changes": ("Changes", self._changes),
            "calendars": ("Calendars", self._calendars),
        }
        return {name: partial(self.page, name, title, asked) for name, (title, asked) in pages.items()}

    async def _now_and_next(self, _query: Query) -> Values:
        """Ask whether all is well, and what happens now and next."""
        ask = self._source.get
        activity, timeline, fires, failures = await asyncio.gather(
            ask(sidecar_answers.ACTIVITY),
            ask(sidecar_answers.TIMELINE),
            ask(sidecar_answers.RECENT_FIRES, {"limit": 12}),
            ask(sidecar_answers.FAILURES, {"limit": 8}),
        )
        ahead = None if timeline.data is None else _minutes(timeline.data)
        return {
            "activity": activity,
            "hour": None if activity.data is None else hour_of(activity.data),
            "timeline": timeline,
            "soonest": [] if timeline.data is None else _soonest(timeline.data),
            "ahead": ahead,
            "ahead_chart": None if ahead is None else bar_chart(ahead, "fires"),
            "fires": fires,
            "failures": failures,
            "what_happened": what_happened,
            "troubled_first": troubled_first,
            "grouped": grouped,
        }

    async def _listed(self, query: Query) -> Values:
        """Ask for the schedules of a stream that are searched for, and how many there are."""
        streams = await self._source.get(sidecar_answers.STREAMS, ALL_STREAMS)
        names = [] if streams.data is None else [one["stream"] for one in streams.data["streams"]]
        stream = query.get("stream") or (names[0] if names else "")
        searched = {name: query.get(name) or None for name in FIELDS}
        is_searched = any(text for name, text in searched.items() if name != "order")
        page = {"limit": PAGE_LENGTH, "cursor": query.get("cursor") or None, "count": is_searched}
        asked = {"stream": stream, **search_keys(searched), **page}
        listed: AnswerState[Any] = await self._source.get(sidecar_answers.SCHEDULES, asked) if stream else NOTHING
        known = {one["stream"]: one for one in ([] if streams.data is None else streams.data["streams"])}
        return {
            "title": f"Schedules of {stream}" if stream else "Schedules",
            "wanted": {"stream": stream, **searched},
            "is_searched": is_searched,
            "cursor": query.get("cursor"),
            "listed": listed,
            "stream_names": sorted({*names, *([stream] if stream else [])}),
            "stream": known.get(stream),
            "states": STATES,
            "kinds": KINDS,
            "orders": ORDERS,
        }

    async def _story(self, query: Query) -> Values:
        """Ask for all that is known of one schedule."""
        ask, stream, subject = self._source.get, query.get("stream", ""), query.get("subject", "")
        one = {"stream": stream, "subject": subject}
        found, following, changes, past, failures = await asyncio.gather(
            ask(sidecar_answers.SCHEDULE, one),
            ask(sidecar_answers.NEXT_FIRES, {**one, "count": 8}),
            ask(sidecar_answers.CHANGES, {**one, "limit": 5}),
            ask(sidecar_answers.PAST_FIRES, {**one, "limit": 20}),
            ask(sidecar_answers.FAILURES, {**one, "limit": 20}),
        )
        schedule = None if found.data is None else found.data["schedule"]
        explained: AnswerState[Any] = NOTHING
        if schedule is not None:
            asked = {"pattern": schedule["pattern"], "time_zone": schedule["time_zone"], "count": 20}
            explained = await ask(sidecar_answers.EXPLANATION, asked)
        return {
            "title": subject or "Schedule",
            "status": NOT_FOUND if found.code == NOT_FOUND else OK,
            "stream": stream,
            "subject": subject,
            "found": found,
            "schedule": schedule,
            "following": following,
            "rows": next_rows(following.data, explained.data),
            "words": None if explained.data is None else explained.data["words"],
            "changes": changes,
            "versions": {} if schedule is None else _versions(changes, schedule["sequence"]),
            "past": past,
            "failures": failures,
            "what_happened": what_happened,
        }

    async def _history(self, query: Query) -> Values:
        """Ask for the past fires of one schedule in pages, and for those of a day."""
        ask, stream, subject = self._source.get, query.get("stream", ""), query.get("subject", "")
        search, one = _search(query), {"stream": stream, "subject": subject}
        end = self._source.now() if search.until is None else search.until
        day = {"since": format_rfc3339(end - DAY), "until": format_rfc3339(end), "limit": MAX_DAY_FIRES}
        fires, in_day = await asyncio.gather(
            ask(sidecar_answers.PAST_FIRES, {**one, **search.asked, "limit": PAGE_LENGTH}),
            ask(sidecar_answers.PAST_FIRES, {**one, **(day if search.until else {**day, "until": None})}),
        )
        found = in_day.data
        return {
            "title": f"Past fires of {subject}",
            "is_still": not (fires.is_waiting or in_day.is_waiting),
            "stream": stream,
            "subject": subject,
            "search": search,
            "fires": fires,
            "in_day": in_day,
            "day": None if found is None else day_of(found["fires"], end, are_all=found["older"] is None),
            "earlier": format_rfc3339(end - DAY),
            "later": format_rfc3339(end + DAY) if end + DAY < self._source.now() else None,
        }

    async def _content(self, query: Query) -> Values:
        """Ask for the body and all headers of a schedule, or of a fire."""
        return await content_values(self._source, query)

    async def _fires(self, query: Query) -> Values:
        """Ask for the last fires of all schedules."""
        wanted = _wanted(query)
        return {
            "wanted": wanted,
            "fires": await self._source.get(sidecar_answers.RECENT_FIRES, {**wanted, "limit": 100}),
        }

    async def _failures(self, query: Query) -> Values:
        """Ask for what went wrong."""
        wanted, search, kind = _wanted(query), _search(query), query.get("kind") or None
        about = {"stream": wanted["stream"], "subject": wanted["filter"], "kind": kind}
        failures = await self._source.get(sidecar_answers.FAILURES, {**about, **search.asked, "limit": 100})
        return {
            "wanted": {**wanted, "kind": kind},
            "search": search,
            "kinds": sorted(FAILURE_KINDS),
            "failures": failures,
            "what_happened": what_happened,
        }

    async def _changes(self, query: Query) -> Values:
        """Ask for who changed which schedules."""
        wanted, search = _wanted(query), _search(query)
        question = {"stream": wanted["stream"], "subject": wanted["filter"], **search.asked, "limit": 100}
        changes = await self._source.get(sidecar_answers.CHANGES, question)
        versions = {} if search.is_of_the_past else _versions(changes)
        return {"wanted": wanted, "search": search, "changes": changes, "versions": versions}

    async def _streams(self, query: Query) -> Values:
        """Ask for the streams."""
        cursor = query.get("cursor")
        return {"cursor": cursor, "listed": await self._source.get(sidecar_answers.STREAMS, {"cursor": cursor})}

    async def _calendars(self, query: Query) -> Values:
        """Ask for the calendars; what waits for one is among the findings."""
        cursor = query.get("cursor")
        listed = await self._source.get(sidecar_answers.CALENDARS, {"cursor": cursor, "limit": PAGE_LENGTH})
        return {"cursor": cursor, "listed": listed, "most": MAX_COMING}

    async def _instances(self, _query: Query) -> Values:
        """Ask for the sidecars, and which of them owns what."""
        known = (await self._source.get(sidecar_answers.INSTANCES)).data
        listed = [] if known is None else known["instances"]
        return {
            "letters": letters_of(listed),
            "owned": [] if known is None else ownership_of(listed),
            "takeover": takeover_text,
        }

    async def _rejected(self, query: Query) -> Values:
        """Ask for the messages of a stream that look like schedules and never fire."""
        ask, stream = self._source.get, query.get("stream", "")
        cursors = {name: query.get(name) for name in ("cursor", "misnamed")}
        rejected, misnamed = await asyncio.gather(
            ask(sidecar_answers.REJECTED, {"stream": stream, "limit": PAGE_LENGTH, "cursor": cursors["cursor"]}),
            ask(sidecar_answers.MISNAMED, {"stream": stream, "limit": PAGE_LENGTH, "cursor": cursors["misnamed"]}),
        )
        title = f"Rejected messages of {stream}"
        return {"title": title, "stream": stream, "rejected": rejected, "misnamed": misnamed, "cursors": cursors}

    async def _findings(self, _query: Query) -> Values:
        """Ask for nothing more than each page does, and show the findings by code and stream."""
        return {"grouped": grouped}

    async def login(self, request: Request) -> Response:
        """Ask for a token, and store in a cookie that it was given."""
        if not self._logins:
            return RedirectResponse("/", 303)
        if request.method != "POST":
            return self._login_form(request.query_params.get("next", "/"), OK)
        form = dict(parse_qsl((await body_of(request, MAX_LOGIN_BYTES) or b"").decode("latin-1"), errors="replace"))
        target = _own_path(form.get("next", "/"))
        if form.get("leave"):
            leaving = RedirectResponse(LOGIN, 303)
            for one in self._logins:
                leaving.delete_cookie(one.name, self._cookie_path, httponly=True, samesite="strict")
            return leaving
        if wait := self._attempts.seconds(request.scope):
            return self._login_form(target, 429, wait)
        opened = next((one for one in self._logins if one.is_token(form.get("token", "").strip())), None)
        if opened is None:
            await self._attempts.failed(request.scope)
            return self._login_form(target, 403)
        entered = RedirectResponse(target, 303)
        # A proxy before this page has TLS; a browser says so too.
        is_secure = request.url.scheme == "https" or request.headers.get("origin", "").startswith("https://")
        entered.set_cookie(
            opened.name,
            opened.cookie(),
            SESSION_SECONDS,
            path=self._cookie_path,
            secure=is_secure,
            httponly=True,
            samesite="strict",
        )
        return entered

    async def zone(self, request: Request) -> Response:
        """Have the browser keep the time zone of its reader, or forget it."""
        form = dict(parse_qsl((await body_of(request, MAX_LOGIN_BYTES) or b"").decode("latin-1"), errors="replace"))
        name, answer = form.get("zone", "").strip(), RedirectResponse(_own_path(form.get("next", "/")), 303)
        if name in ("", UTC.name):
            answer.delete_cookie(ZONE_COOKIE, self._cookie_path, httponly=True, samesite="strict")
            return answer
        zone = zone_called(name)
        if zone is None:
            sentence = f"a time zone of '{name[:64]}': expected a name such as Europe/Berlin, or nothing"
            wrong = {"is_still": True, "sentence": sentence, "status": 422}
            return await self.page("problem", "Not a time zone", partial(as_given, wrong), request)
        answer.set_cookie(
            ZONE_COOKIE,
            zone_cookie(zone),
            ZONE_SECONDS,
            path=self._cookie_path,
            httponly=True,
            samesite="strict",
        )
        return answer

    def _login_form(self, target: str, status: int, wait: int = 0) -> Response:
        settings = [{CONTROL_COOKIE: "web_control_token"}.get(one.name, "web_token") for one in self._logins]
        wrong = f"{too_many_attempts(wait).capitalize()}." if wait else "This is not the token." if status != OK else ""
        values = {"next": _own_path(target), "wrong": wrong, "settings": settings[::-1], "version": VERSION}
        waiting = {"Retry-After": str(wait)} if wait else None
        return HTMLResponse(render(self._templates, "login.html", values), status, waiting)

    async def missing(self, request: Request, _error: Exception) -> Response:
        """Answer that there is no such page."""
        return await self.page("missing", "No such page", self._missing, request)

    async def _missing(self, _query: Query) -> Values:
        return {"status": NOT_FOUND}

    async def _health_of_each(self, instances: AnswerState[InstancesAnswer]) -> Mapping[str, AnswerState[HealthAnswer]]:
        """Return what each instance that is alive says of itself, by its name, if there are several."""
        known = [] if instances.data is None else instances.data["instances"]
        alive = [one["id"] for one in known if one["state"] == "alive" and INSTANCE_ID.fullmatch(one["id"])]
        if len(alive) < 2:
            return {}
        names = alive[:MAX_INSTANCES_ASKED]
        asked = (self._source.get(sidecar_answers.health_of(one)) for one in names)
        return dict(zip(names, await asyncio.gather(*asked), strict=True))

    async def page(
        self, name: str, title: str, asked: Callable[[Query], Awaitable[Values]], request: Request
    ) -> Response:
        """Render a page, or its parts that change, with the verdict that each page shows.

        What only this page asks for may contain `title`, `status` and `is_still`, for a page that does not change.
        """
        values, common = await asyncio.gather(asked(request.query_params), self._common())
        of_each = {
            "page": name,
            "now": self._source.now(),
            "version": VERSION,
            "who": request.state.who,
            "proof": self._proof(request),
            "reader_zone": reader_zone(request.cookies),
            "controls": self._controllers,
            "logins": [one for one in self._logins if one.login_of(request.headers) is not None],
            "here": address(request.url.path, **request.query_params),
            "layout": "fragment.html" if request.headers.get("x-fragment") else "page.html",
            **common,
        }
        assert not (taken := of_each.keys() & values.keys()), f"{name}: each page has {', '.join(taken)}"
        shown = {"title": title, "status": OK, "is_still": False, **values, **of_each}
        body = render(self._templates, f"{name}.html", shown)
        if not request.headers.get("x-fragment"):
            return HTMLResponse(body, shown["status"])
        return _update(body, request, shown["status"])

    def _proof(self, request: Request) -> str:
        """Return what proves a form of this login; "" in parts that change, which are compressed."""
        who, is_part = request.state.who, "x-fragment" in request.headers
        return "" if is_part or who is None or self._controllers is None else self._controllers.form_proof(who)

    def part(self, request: Request, name: str, values: Values) -> Response:
        """Render a part of a page, for a script that puts it there."""
        shown = {"now": self._source.now(), "reader_zone": reader_zone(request.cookies), **values}
        return HTMLResponse(render(self._templates, name, shown))

    async def _common(self) -> Values:
        """Ask for what each page shows."""
        ask = self._source.get
        health, streams, instances, findings = await asyncio.gather(
            ask(sidecar_answers.HEALTH),
            ask(sidecar_answers.STREAMS, ALL_STREAMS),
            ask(sidecar_answers.INSTANCES),
            ask(sidecar_answers.FINDINGS),
        )
        each, source = await self._health_of_each(instances), self._source
        known = Known(source.now(), health, each, streams, instances, findings)
        told = [one.data for one in (each.values() or [health]) if one.data is not None]
        return {
            "control_refusal": refusal_of(told, self._controllers.rule) if self._controllers else "",
            "verdict": verdict(known),
            "last_good_at": source.last_good_at,
            "health": health,
            "streams": streams,
            "instances": instances,
            "findings": findings,
            "totals": totals(streams, instances),
        }


async def healthz(_request: Request) -> Response:
    """Answer that the process works."""
    return PlainTextResponse("ok\n")


def _update(body: bytes, request: Request, status: int) -> Response:
    """Return the parts of a page that change, compressed, without the main one if the script of the page has it.

    Only these are compressed: no form with a secret is in them, so their length says nothing of one.
    """
    main = body.find(LIVE_PART)
    digest = sha256(body[main:]).hexdigest()[:16]
    headers = {"X-Live": digest, "Vary": "Accept-Encoding"}
    if request.headers.get("x-live") == digest:
        body = body[:main]
    if "gzip" in request.headers.get("accept-encoding", ""):
        body, headers["Content-Encoding"] = compress(body, COMPRESSION, mtime=0), "gzip"
    return HTMLResponse(body, status, headers)


def totals(streams: AnswerState[StreamsAnswer], instances: AnswerState[InstancesAnswer]) -> Values:
    """Return sums over the streams that are shown: what their names say, and when anything fires next (ns)."""
    listed = () if streams.data is None else streams.data["streams"]
    fires = [one["next"]["next_fire"] for one in listed if one["next"] is not None]
    counts = [one["schedules"] for one in listed if one["schedules"] is not None]
    kinds = {kind: sum(one["kinds"].get(kind, 0) for one in counts) for kind in KINDS}
    known = () if instances.data is None else instances.data["instances"]
    return {
        "schedules": sum(one["total"] for one in counts),
        "failing": sum(one["failing"] for one in listed),
        "next": min((fire["nanoseconds"] for fire in fires if fire is not None), default=None),
        "alive": sum(one["state"] == "alive" for one in known),
        "kinds": ", ".join(f"{number:,} {kind}" for kind, number in kinds.items() if number),
    }


def _minutes(timeline: TimelineAnswer) -> list[tuple[int, int]]:
    """Return the start (ns) of each of the next minutes, and how many fires come due in it."""
    return [(instant_of(one["from"]), one["fires"]) for one in timeline["minutes"][:MAX_MINUTES_AHEAD]]


def _soonest(timeline: TimelineAnswer) -> list[tuple[int, ScheduleDocument]]:
    """Return when each of the next schedules fires (ns), soonest first: some have fired since they were found."""
    found = [(due, one) for one in timeline["soonest"] if (due := due_of(one)) is not None]
    return sorted(found, key=lambda row: row[0])


async def as_given(values: Values, _query: Query) -> Values:
    """Ask for nothing: the values are there."""
    return values


def _versions(changes: AnswerState[ChangesAnswer], sequence: int | None = None) -> Mapping[int, EarlierVersion]:
    return {} if changes.data is None else earlier_versions(changes.data["changes"], sequence)


def _wanted(query: Query) -> dict[str, str | None]:
    return {"stream": query.get("stream") or None, "filter": query.get("filter") or None}


@dataclass(frozen=True, slots=True)
class Search:
    """Where in the past a page begins, as its address names it."""

    text: str
    """The time that was typed, in UTC."""
    until: int | None
    """That time (ns); None without one, or if it is none."""
    before: int | None
    """The sequence behind which the page before ended."""

    @property
    def asked(self) -> Values:
        """What is asked of a sidecar."""
        return {"until": None if self.until is None else format_rfc3339(self.until), "before": self.before}

    @property
    def fault(self) -> str:
        """What is wrong with the time, "" if nothing is."""
        if not self.text or self.until is not None:
            return ""
        return no_time(self.text)

    @property
    def is_of_the_past(self) -> bool:
        """True if it does not begin with the newest."""
        return self.until is not None or self.before is not None


def _search(query: Query) -> Search:
    text = query.get("until", "").strip()
    return Search(text, typed_time(text), sequence_in(query.get("before", "")))


def typed_time(text: str) -> int | None:
    """Return the instant (ns) of a time as it is typed, in UTC unless it has an offset; None if it is none."""
    times = (parse_rfc3339(one) for one in (text, f"{text}Z", f"{text}:00Z"))
    return next((at for at in times if isinstance(at, int) and DAY < at < MAX_UNTIL), None)


def no_time(text: str) -> str:
    """Return what is expected instead of a text that is no time."""
    return f"{text[:MAX_TIME_CHARS]!r} is no time: expected one such as 2026-01-31T09:00"


async def body_of(request: Request, most: int) -> bytes | None:
    """Return the body of a form, None if it has more than `most` bytes: what is beyond is not read."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            return None
    return body


def _own_path(target: str) -> str:
    """Return a path of this page: the target of a login must not lead to another site."""
    is_own = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if is_own and target.isascii() else "/"
