"""The pages on which a schedule is edited, or a new one is written, with what the server would say of it.

The rules:

- An edit sends what differs from what the page showed, and nothing else: what another person changed meanwhile
  is refused by its sequence, shown beside what was typed, and taken over where nothing was typed.
- What is typed comes back with each answer. Notes of the sidecar are shown before it is stored.
- No request answers a body, or a header that is none of a schedule: they stay as they are unless new ones are written.

Cost: a request for each preview, two if it is refused; a script of the page asks for some while a person types.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from nats_scheduler.message.dialect import DIALECTS, Dialect, dialect_named
from nats_scheduler.message.schedule_form import FIELDS, ScheduleForm, diff
from nats_scheduler.observe.documents import ScheduleDocument
from nats_scheduler.observe.outlook import FIRES_AHEAD, OutlookDocument
from nats_scheduler.service import sidecar_answers
from nats_scheduler.service.change_endpoints import ChangeAnswer
from nats_scheduler.service.client import QuestionError, read
from nats_scheduler.service.micro import CONFLICT, UNAVAILABLE, UNPROCESSABLE
from nats_scheduler.service.past_answers import ChangesAnswer, KeptChangeDocument
from nats_scheduler.service.pattern_endpoints import ExplainAnswer
from nats_scheduler.service.schemas import ScheduleAnswer
from nats_scheduler.web.change_pages import (
    Control,
    Form,
    Header,
    Route,
    WrongFormError,
    author_of,
    code_of,
    headers_of,
    missing_of,
    names_of,
    policies_of,
    sequence_of,
)
from nats_scheduler.web.pages import ALL_STREAMS, NOT_FOUND, NextRow, rows_ahead
from nats_scheduler.web.request_checks import ADD, EDIT
from nats_scheduler.web.results import FormRow

SHOWN = (*(field.name for field in FIELDS), "policies")
"""The fields that show what is stored."""

TYPED = ("set", "unset", "body", "replace")
"""The fields that do not."""

Fields = Mapping[str, str]
"""What is in the fields of a form, by their names."""


def fields_of(schedule: ScheduleDocument | None) -> Fields:
    """Return the fields of a schedule that is stored; empty ones of none."""
    if schedule is None:
        return dict.fromkeys(SHOWN, "")
    stored: Mapping[str, Any] = schedule
    policies = "\n".join(f"{name}: {value}" for name, value in schedule["policies"].items())
    return {**{field.name: stored[field.name] or "" for field in FIELDS}, "policies": policies}


def form_of(fields: Fields) -> ScheduleForm:
    """Return the form that fields stand for; raises `ValueError` for a line that is no policy."""
    texts: dict[str, Any] = {field.name: fields[field.name] or None for field in FIELDS}
    return replace(ScheduleForm(policies=policies_of(fields["policies"])), **texts)


def shown(headers: Iterable[tuple[bytes, bytes]]) -> list[Header]:
    """Return headers as a request has them."""
    return [[name.decode(), value.decode()] for name, value in headers]


@dataclass(frozen=True, slots=True)
class Written:
    """What a form says of a schedule: its fields as typed, and as they were when it was made."""

    stream: str
    subject: str
    spelling: str
    sequence: int
    """The sequence that the form shows, 0 for none."""
    typed: Fields
    was: Fields

    def edit(self) -> dict[str, object]:
        """Return the keys of the request for what differs; raises `ValueError`."""
        if self.typed["body"] and not self.typed["replace"]:
            raise ValueError("a body is typed: choose to replace the stored one by it, or clear it")
        edit = diff(form_of(self.was), form_of(self.typed), self.dialect)
        asked: dict[str, object] = {
            "set": shown(edit.set) + headers_of(self.typed["set"]),
            "unset": [name.decode() for name in edit.unset] + names_of(self.typed["unset"]),
            "expected": self.sequence,
        }
        return {**asked, "body": self.typed["body"]} if self.typed["replace"] else asked

    def addition(self) -> dict[str, object]:
        """Return the keys of the request for a new schedule; raises `ValueError`."""
        own = tuple((name, value) for name, value in headers_of(self.typed["set"]))
        form = replace(form_of(self.typed), headers=own)
        headers = form.effective_items(self.dialect)
        if not isinstance(headers, list):
            raise ValueError(str(headers))
        asked: dict[str, object] = {"headers": shown(headers), "body": self.typed["body"]}
        return {**asked, "replace": True, "expected": self.sequence} if self.typed["replace"] else asked

    @property
    def dialect(self) -> Dialect:
        """The spelling of the headers; raises `ValueError` for what is none."""
        dialect = dialect_named(self.spelling)
        if dialect is None:
            expected = " or ".join(one.name for one in DIALECTS)
            raise ValueError(f"a spelling of '{self.spelling[:40]}': expected {expected}")
        return dialect

    def beside(self, schedule: ScheduleDocument | None, sequence: int, *, is_new: bool) -> "Written":
        """Return it beside what is stored now; in an edit, a field in which nothing was typed has what is stored."""
        now, untouched = fields_of(schedule), [name for name in SHOWN if self.typed[name] == self.was[name]]
        typed = self.typed if is_new else {**self.typed, **{name: now[name] for name in untouched}}
        spelling = self.spelling if is_new or schedule is None else schedule["dialect"]
        return Written(self.stream, self.subject, spelling, sequence, typed, now)


@dataclass(frozen=True, slots=True)
class Preview:
    """What would be stored, when it would fire, and what the sidecar says of it."""

    asked: Mapping[str, Any]
    """The keys of the request, of which an edit shows those of the headers."""
    answer: ChangeAnswer | None = None
    refusal: str = ""
    code: int = 0
    explained: ExplainAnswer | None = None
    """The pattern alone, where the answer does not say when the schedule fires."""

    @property
    def said(self) -> str:
        """What is to be read before it is stored: its notes, and the codes of what is found; "" for nothing."""
        if self.answer is None:
            return ""
        return "\n".join([*self.answer["notes"], *(one["code"] for one in self.answer["findings"])])

    @property
    def ahead(self) -> OutlookDocument | ExplainAnswer | None:
        """When it would fire next."""
        found = None if self.answer is None else self.answer["outlook"]
        return found or (self.explained if self.explained is not None and self.explained["words"] else None)

    @property
    def rows(self) -> list[NextRow]:
        """The next fires, with what a change of the clock does to them."""
        return [] if self.ahead is None else rows_ahead(self.ahead)


class Editing:
    """The handlers of these pages."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._link = control.link

    def routes(self) -> list[Route]:
        """Return the paths with their handlers."""
        pages = {EDIT: self._edit, ADD: self._add}
        return [(path, partial(self._control.handled, page)) for path, page in pages.items()]

    async def _edit(self, request: Request, form: Form | None) -> Response:
        """Show a schedule in a form, what an edit would make of it, or edit it."""
        if form is not None:
            return await self._answered(request, form, "edit")
        stream, subject = request.query_params.get("stream", ""), request.query_params.get("subject", "")
        try:
            schedule = (await self._stored(stream, subject))["schedule"]
        except QuestionError as error:
            raise WrongFormError(NOT_FOUND if code_of(error) == NOT_FOUND else UNAVAILABLE, str(error)) from None
        if schedule is None:
            raise WrongFormError(NOT_FOUND, f"'{subject}' has no valid schedule to edit: replace it by a new one")
        written = untouched(stream, subject, schedule["dialect"], schedule)
        return await self._page(request, "edit", written, await self._preview("edit", written))

    async def _add(self, request: Request, form: Form | None) -> Response:
        """Show the form of a new schedule, what it would be, or store it."""
        if form is not None:
            return await self._answered(request, form, "add")
        stream, subject = request.query_params.get("stream", ""), request.query_params.get("subject", "")
        streams = (await self._control.source.get(sidecar_answers.STREAMS, ALL_STREAMS)).data
        modes = {one["stream"]: one["mode"] for one in ([] if streams is None else streams["streams"])}
        spelling = "portable" if modes.get(stream) == "portable" else "adr51"
        return await self._page(request, "add", untouched(stream, subject, spelling), Preview({}))

    async def _answered(self, request: Request, form: Form, do: str) -> Response:
        """Answer a form: with a preview, with what was done, or with what is wrong beside all that was typed."""
        written = written_in(form)
        preview = await self._preview(do, written)
        if request.headers.get("x-fragment"):
            return self._control.pages.part("preview.html", {"preview": preview})
        author, stale = author_of(request.state.who, form), preview.code == CONFLICT
        wrong = preview.refusal if form.text("step") == "store" else ""
        if form.text("step") == "store" and preview.answer is not None:
            is_read = preview.said in ("", form.text("notes"))
            wrong = missing_of(author) or ("" if is_read else "read the notes of the preview, then store it")
            if not wrong:
                outcome = await self._control.done(f"schedules.{do}", self._asked(do, written) | author)
                answer, refusal, code, is_unknown = outcome
                if answer is not None or is_unknown:
                    row = FormRow(written.subject, written.sequence, None, answer, refusal, is_unknown)
                    return self._control.shown_done(request, do.title(), written.stream, [row])
                wrong, stale = refusal, code == CONFLICT
                preview = replace(preview, answer=None, refusal=refusal, code=code)
        beside = await self._beside(do, written) if stale else None
        if beside is not None:
            written, wrong = beside, preview.refusal
            preview = await self._preview(do, written) if do == "edit" else preview
        change = None if beside is None else await self._change_to(beside)
        return await self._page(
            request, do, written, preview, wrong=wrong, form=form, is_stale=beside is not None, change=change
        )

    async def _page(self, request: Request, do: str, written: Written, preview: Preview, **more: Any) -> Response:
        values = {"do": do, "written": written, "preview": preview, "wrong": "", "form": Form({}), "change": None}
        status = {"status": CONFLICT if more.get("is_stale") else UNPROCESSABLE} if more.get("wrong") else {}
        title = f"Edit {written.subject}" if do == "edit" else "Add a schedule"
        return await self._control.shown(request, "edit", title, {**values, **more, **status})

    async def _preview(self, do: str, written: Written) -> Preview:
        """Ask when a schedule would fire, and what the sidecar says of it, without storing it."""
        try:
            asked = {**self._asked(do, written), "dry_run": True}
        except ValueError as error:
            return Preview({}, refusal=str(error))
        answer, refusal, code, _unknown = await self._control.done(f"schedules.{do}", asked)
        says_when = answer is not None and answer["outlook"] is not None
        return Preview(asked, answer, refusal, code, None if says_when else await self._explained(written.typed))

    async def _explained(self, typed: Fields) -> ExplainAnswer | None:
        asked = {"pattern": typed["pattern"], "time_zone": typed["time_zone"] or None, "count": FIRES_AHEAD}
        try:
            return read(ExplainAnswer, await self._link.ask("explain", asked)) if asked["pattern"] else None
        except QuestionError:
            return None  # the sidecar says in its answer to the change what is wrong

    async def _stored(self, stream: str, subject: str) -> ScheduleAnswer:
        return read(ScheduleAnswer, await self._link.ask("schedules.get", {"stream": stream, "subject": subject}))

    async def _beside(self, do: str, written: Written) -> Written | None:
        """Return what was typed beside what is stored now; None if there is none, or it cannot be asked for."""
        try:
            found = await self._stored(written.stream, written.subject)
        except QuestionError:
            return None
        stored = found["schedule"] or found["rejected"]
        return None if stored is None else written.beside(found["schedule"], stored["sequence"], is_new=do == "add")

    async def _change_to(self, written: Written) -> KeptChangeDocument | None:
        """Return who stored what is there now, and why; None if that was not recorded, or not yet."""
        asked = {"stream": written.stream, "subject": written.subject, "limit": 1}
        try:
            found = read(ChangesAnswer, await self._link.ask("changes.list", asked))["changes"]
        except QuestionError:
            return None
        return next((one for one in found if one["sequence"] == written.sequence), None)

    @staticmethod
    def _asked(do: str, written: Written) -> dict[str, object]:
        place: dict[str, object] = {"stream": written.stream, "subject": written.subject}
        return place | (written.edit() if do == "edit" else written.addition())


def untouched(stream: str, subject: str, spelling: str, schedule: ScheduleDocument | None = None) -> Written:
    """Return a form in which nothing is typed yet, of a schedule that is stored or of a new one."""
    was, sequence = fields_of(schedule), 0 if schedule is None else schedule["sequence"]
    return Written(stream, subject, spelling, sequence, {**was, **dict.fromkeys(TYPED, "")}, was)


def written_in(form: Form) -> Written:
    """Return what a form says of a schedule; raises `WrongFormError` for a sequence that is none."""
    typed = {name: form.text(name) for name in (*SHOWN, *TYPED)} | {"body": form.whole("body")}
    was = {name: form.text(f"was_{name}") for name in SHOWN}
    sequence = sequence_of(form.text("sequence"))
    return Written(form.text("stream"), form.text("subject"), form.text("spelling"), sequence, typed, was)
