"""The pages that change schedules: pause, resume, fire, edit and remove; one, those selected, or all of a search.

The missed fires of a range of time are stored for one schedule at a time: there may be a thousand.

The rules:

- Each change is one control request (`service.change_endpoints`), with the sequence that the page showed, so that the
  sidecar refuses it if another one is there. Nothing else is written, and a GET changes nothing.
- What would be done is asked for first (`dry_run`), shown with its notes, and then done, by whom and why.
- A form proves that it was made for the one who sends it.
- What a form has done is shown by an address of its own (`web.results`), so that a reload sends nothing again.

Cost: a request for each schedule that is shown, and another one for each that is changed; at most `MAX_AT_ONCE` at the
same time. Limit: `MAX_SELECTED` schedules on a page; what has not begun after `BEGIN_SECONDS` is not done.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, Protocol
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from nats_scheduler.control.changes import MAX_AUTHOR_CHARS
from nats_scheduler.control.errors import SchedulerError
from nats_scheduler.control.fire_requests import DEFAULT_BACKFILL, MAX_BACKFILL
from nats_scheduler.jetstream.task_group import in_turn
from nats_scheduler.message.foreign_json import Object
from nats_scheduler.message.policies import named_policies
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.service.change_endpoints import ChangeAnswer
from nats_scheduler.service.client import read
from nats_scheduler.service.micro import UNPROCESSABLE, ServiceError
from nats_scheduler.service.schemas import ScheduleAnswer, SchedulesAnswer
from nats_scheduler.service.searches import FIELDS, search_keys
from nats_scheduler.service.sidecar_answers import Answers
from nats_scheduler.web.pages import (
    MAX_TIME_CHARS,
    NOT_FOUND,
    OK,
    Pages,
    Values,
    as_given,
    body_of,
    no_time,
    typed_time,
)
from nats_scheduler.web.rendering import address, sequence_in
from nats_scheduler.web.request_checks import CHANGE, CHANGED, Controller, Controllers
from nats_scheduler.web.results import FormRow, Result, Results

MAX_SELECTED = 200
"""Schedules that one page changes."""

MAX_AT_ONCE = 4
"""Requests for changes in work at once; a sidecar takes 16, of which a rule gets four, and others ask it too."""

BEGIN_SECONDS = 12.0
"""The time after which no further change of a form begins: a request of a browser may take 30 s."""

MAX_FORM_BYTES = 256 * 1024
MAX_FIELDS = 2 * MAX_SELECTED

SEE_OTHER, GONE = 303, 410

OPERATIONS = {
    "pause": "Pause",
    "resume": "Resume",
    "fire": "Fire now",
    "backfill": "Store missed fires",
    "edit": "Edit",
    "remove": "Remove",
}
"""What is done to schedules that are there, and the words for it."""

RANGE = {"since": "From", "until": "To"}
"""The fields of a range of fire times, and the words for them."""


class Asking(Protocol):
    """Sends requests to the sidecars; both methods raise `SchedulerError`."""

    async def ask(self, endpoint: str, request: Mapping[str, object]) -> Object:
        """Ask for something."""
        ...

    async def change(self, endpoint: str, request: Mapping[str, object]) -> Object:
        """Change something, or ask what would be changed."""
        ...


class WrongFormError(Exception):
    """A form, or an address, is none of this page; the text says what is expected."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


@dataclass(frozen=True, slots=True)
class Form:
    """What was sent by a form: one value or several for each name."""

    values: Mapping[str, Sequence[str]]

    def text(self, name: str) -> str:
        """Return a value without blanks around it, "" if there is none."""
        return self.whole(name).strip()

    def whole(self, name: str) -> str:
        """Return a value as it was typed, "" if there is none; browsers send a line break as CR LF."""
        return self.values.get(name, [""])[0].replace("\r\n", "\n")


class Outcome(NamedTuple):
    """What became of a control request: its answer, or why there is none."""

    answer: ChangeAnswer | None
    refusal: str = ""
    code: int = 0
    """That of the sidecar for a refusal; 0 if it is of nobody."""
    is_unknown: bool = False
    """True if it may be done or not."""


Header = Sequence[str]
"""A name and a value."""

Handler = Callable[[Request, Form | None], Awaitable[Response]]
"""Gets a request, and its form if it has one."""

Route = tuple[str, Callable[[Request], Awaitable[Response]]]
"""A path and its handler."""


class Control:
    """The handlers of these pages, and what all pages that change schedules share."""

    def __init__(self, link: Asking, source: Answers, pages: Pages, controllers: Controllers) -> None:
        """Ask over `link`, whose answers are not kept; `source` has the clock, and answers that a change outdates."""
        self.link = link
        self.source = source
        self.pages = pages
        self._controllers = controllers
        self._results = Results()

    def routes(self) -> list[Route]:
        """Return the paths with their handlers."""
        return [(CHANGE, partial(self.handled, self._change)), (CHANGED, partial(self.handled, self._changed))]

    async def handled(self, handler: Handler, request: Request) -> Response:
        """Answer a request; the form of a POST has a proof."""
        try:
            form = await self._form(request) if request.method == "POST" else None
            return await handler(request, form)
        except WrongFormError as error:
            return await self.shown(request, "problem", "Not done", {"sentence": str(error), "status": error.status})

    async def _form(self, request: Request) -> Form:
        body = await body_of(request, MAX_FORM_BYTES)
        if body is None:
            raise WrongFormError(413, f"the form is too long: at most {MAX_FORM_BYTES:,} bytes are expected")
        try:
            found = parse_qs(body.decode("latin-1"), True, errors="replace", max_num_fields=MAX_FIELDS)
        except ValueError:
            raise WrongFormError(413, f"the form has more than {MAX_FIELDS} fields") from None
        form = Form(found)
        if not self._controllers.is_form_proof(request.state.who, form.text("proof")):
            raise WrongFormError(403, "the form was made for another login, or before a restart: open its page again")
        return form

    async def shown(self, request: Request, name: str, title: str, values: Values) -> Response:
        """Render a page with a form; it is left as it is while its reader types."""
        shown = {
            "is_still": True,
            "is_stale": False,
            "most_chars": MAX_AUTHOR_CHARS,
            **values,
        }
        return await self.pages.page(name, title, partial(as_given, shown), request)

    def shown_done(self, request: Request, words: str, stream: str, rows: Sequence[FormRow]) -> Response:
        """Lead to the page that shows what was done, what was refused, and what is not known."""
        name = self._results.keep(request.state.who.login, Result(words, stream, rows))
        subject = rows[0].subject if len(rows) == 1 else None
        return RedirectResponse(address(CHANGED, result=name, stream=stream, subject=subject), SEE_OTHER)

    async def _changed(self, request: Request, _form: Form | None) -> Response:
        """Show what became of a form, as long as that is kept."""
        query = request.query_params
        result = self._results.result(request.state.who.login, query.get("result", ""))
        values = {"result": result, "stream": query.get("stream", ""), "subject": query.get("subject", "")}
        title = "This result is not kept any more" if result is None else result.title
        return await self.shown(request, "changed", title, {**values, "status": GONE if result is None else OK})

    # -- one schedule, or all that a search finds ------------------------------------------------------------------

    async def _change(self, request: Request, form: Form | None) -> Response:
        """Show what an operation would do to schedules, or do it if that was shown."""
        query = Form({name: [value] for name, value in request.query_params.items()}) if form is None else form
        do, stream = query.text("do"), query.text("stream")
        if do not in OPERATIONS or not stream:
            raise WrongFormError(NOT_FOUND, f"expected a stream, and do: one of {', '.join(OPERATIONS)}")
        rows = [_row(one) for one in query.values.get("one", ())]
        if query.text("chosen") and not rows:
            raise WrongFormError(UNPROCESSABLE, "no schedule is selected: select some in the list, then choose")
        if do == "backfill" and (not query.text("subject") or len(rows) > 1):
            raise WrongFormError(UNPROCESSABLE, "missed fires are stored for one schedule at a time: open its page")
        fault, wrong, status, following = "", "", OK, None
        is_begun = do != "backfill" or form is not None or any(map(query.text, RANGE))
        try:
            given = self._keys(do, query) if is_begun else {}
        except ValueError as error:
            given, wrong = {}, str(error)
        looked = json.dumps(given)
        if form is not None and form.text("step") != "preview":
            author = author_of(request.state.who, form)
            unseen = "" if form.text("looked") == looked else "look at what would be done, then do it"
            nothing = "the preview says why this is refused" if do == "backfill" else "no schedule is selected"
            wrong = wrong or missing_of(author) or unseen or ("" if rows else nothing)
            if not wrong:
                done = await self._asked(do, stream, rows, {**given, **author})
                return self.shown_done(request, OPERATIONS[do], stream, done)
        try:
            if not rows:
                rows, following = await self._selected(query)
        except SchedulerError as error:
            fault, status = str(error), NOT_FOUND if code_of(error) == NOT_FOUND else OK
        if do != "backfill" or given:  # without a range there is nothing to ask for
            rows = await self._asked(do, stream, rows, {**given, "dry_run": True})
        values = {
            "do": do,
            "words": OPERATIONS[do],
            "stream": stream,
            "query": query,
            "search": {name: query.text(name) for name in FIELDS},
            "given": given,
            "looked": looked,
            "fault": fault,
            "wrong": wrong,
            "following": following,
            "status": UNPROCESSABLE if wrong else status,
            "rows": rows,
            "ranges": RANGE,
            "limits": (DEFAULT_BACKFILL, MAX_BACKFILL),
        }
        return await self.shown(request, "change", OPERATIONS[do], values)

    def _keys(self, do: str, query: Form) -> dict[str, object]:
        """Return what a request says beside the schedule, its author and why; raises `ValueError`."""
        if do == "fire":  # in the form, so that it fires once however often it is sent
            return {"fire_time": query.text("fire_time") or format_rfc3339(self.source.now())}
        if do == "edit":
            headers, policies = headers_of(query.text("set")), policies_of(query.text("policies"))
            return {"set": headers, "unset": names_of(query.text("unset")), "policies": dict(policies)}
        if do == "backfill":
            return range_of(query)
        return {"drop": True} if do == "resume" and query.text("drop") else {}

    async def _selected(self, query: Form) -> tuple[list[FormRow], str | None]:
        """Return the schedules that are meant, and the cursor of those that follow; raises `SchedulerError`."""
        stream, subject = query.text("stream"), query.text("subject")
        if subject:
            one = read(ScheduleAnswer, await self.link.ask("schedules.get", {"stream": stream, "subject": subject}))
            stored = one["schedule"] or one["rejected"]
            return [] if stored is None else [FormRow(subject, stored["sequence"], one["schedule"])], None
        searched = search_keys({name: query.text(name) for name in FIELDS})
        asked = {**searched, "stream": stream, "cursor": query.text("cursor") or None, "limit": MAX_SELECTED}
        found = read(SchedulesAnswer, await self.link.ask("schedules.list", asked))
        rows = [FormRow(one["subject"], one["sequence"], one) for one in found["schedules"]]
        return rows, found["cursor"]

    async def _asked(self, do: str, stream: str, rows: Iterable[FormRow], given: Mapping[str, object]) -> list[FormRow]:
        """Ask for an operation on each schedule, and return what was answered."""
        ends = asyncio.get_running_loop().time() + BEGIN_SECONDS

        async def answered(row: FormRow) -> FormRow:
            if asyncio.get_running_loop().time() > ends:
                return replace(row, refusal=f"not begun within {BEGIN_SECONDS:.0f} s, and not done: do it again")
            asked = {"stream": stream, "subject": row.subject, "expected": row.sequence, **given}
            answer, refusal, _code, is_unknown = await self.done(f"schedules.{do}", asked)
            return replace(row, answer=answer, refusal=refusal, is_unknown=is_unknown)

        return await in_turn([partial(answered, row) for row in rows], MAX_AT_ONCE)

    async def done(self, endpoint: str, asked: Mapping[str, object]) -> Outcome:
        """Send a control request, and return what became of it."""
        try:
            answer = read(ChangeAnswer, await self.link.change(endpoint, asked))
        except SchedulerError as error:
            return Outcome(None, str(error), code_of(error), error.may_be_done and not asked.get("dry_run"))
        if not answer["dry_run"]:
            self.source.ask_again()
        return Outcome(answer)


def range_of(query: Form) -> dict[str, object]:
    """Return the range of fire times that a form names, and the most fires; raises `ValueError`."""
    times = dict[str, object]()
    for name, words in RANGE.items():
        at = typed_time(query.text(name))
        if at is None:
            raise ValueError(f"{words}: {no_time(query.text(name))}")
        times[name] = format_rfc3339(at)
    most = query.text("limit") or str(DEFAULT_BACKFILL)
    if not (most.isascii() and most.isdecimal() and len(most) < 9 and 1 <= int(most) <= MAX_BACKFILL):
        raise ValueError(f"At most: {most[:MAX_TIME_CHARS]!r} is no number of fires: expected 1 to {MAX_BACKFILL:,}")
    return {**times, "limit": int(most)}


def sequence_of(text: str) -> int:
    """Return a sequence, 0 for none; raises `WrongFormError`."""
    sequence = sequence_in(text or "0")
    if sequence is None:
        raise WrongFormError(400, f"a sequence of '{text[:40]}': expected a number")
    return sequence


def headers_of(text: str) -> list[Header]:
    """Return the headers of a text with one a line, of which none has the name of a policy; raises `ValueError`."""
    headers = lines_of(text, "Kind: order")
    for name, value in headers:
        if name.lower().startswith("x-") and isinstance(named_policies([(name, value)]), tuple):
            raise ValueError(f"a header '{name}: {value[:60]}': expected this policy in the field of policies")
    return headers


def policies_of(text: str) -> tuple[tuple[str, str], ...]:
    """Return the policies of a text with one a line, by names such as `X-Limit`; raises `ValueError`."""
    found = named_policies((name, value) for name, value in lines_of(text, "Limit: 3"))
    if not isinstance(found, tuple):
        raise ValueError(str(found))
    return found


def lines_of(text: str, example: str) -> list[Header]:
    """Return names and values of a text with one a line; raises `ValueError`, which shows what is expected."""
    lines = [line for line in text.split("\n") if line.strip()]
    for line in lines:
        if not line.partition(":")[0].strip() or ":" not in line:
            raise ValueError(f"a line of '{line[:60]}': expected a name, a colon and a value, such as '{example}'")
    return [[one.strip() for one in line.split(":", 1)] for line in lines]


def names_of(text: str) -> list[str]:
    """Return the names in a text, with commas or blanks between them."""
    return text.replace(",", " ").split()


def _row(text: str) -> FormRow:
    """Return a schedule as a form names it: its sequence, a blank, its subject."""
    sequence, _, subject = text.partition(" ")
    return FormRow(subject, sequence_of(sequence))


def author_of(who: Controller, form: Form) -> dict[str, str]:
    """Return the keys of a request that say who asks for it, and why."""
    return {
        "author": (who.name or form.text("author"))[:MAX_AUTHOR_CHARS],
        "reason": form.text("reason")[:MAX_AUTHOR_CHARS],
    }


def missing_of(author: Mapping[str, str]) -> str:
    """Return what is missing of who and why; "" if both are there."""
    missing = [words for name, words in (("author", "who you are"), ("reason", "why")) if not author[name]]
    return f"say {' and '.join(missing)}: it is recorded with the change" if missing else ""


def code_of(error: SchedulerError) -> int:
    """Return the code of an error of a sidecar, 0 of any other."""
    return error.code if isinstance(error, ServiceError) else 0
