"""The pages on which a schedule is edited, or a new one is written, with what the server would say of it.

The rules:

- An edit sends what differs from what the page showed, and nothing else: what another person changed meanwhile
  is refused by its sequence, shown beside what was typed, and taken over where nothing was typed.
- To restore an earlier version is an edit too, whose form begins with the fields that the record of changes has.
- What is typed comes back with each answer. Notes of the sidecar are shown before it is stored.
- What a person chooses (`web.form_builder`) is written into the fields of the form, and stored as what is typed is.
- The stored body is in the form if that gives it back as it is: a text without control characters, all of which the
  sidecar answers. The form remembers a digest of it, and not all of it twice. Any other body, and headers that are none
  of a schedule, stay as they are unless new ones are written.

Cost: a request for each preview, two if it is refused; a script of the page asks for some while a person types. A
request for the schedule and one for its body where a form begins, and again where it is refused by its sequence.
"""

import json
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from nats_scheduler.control.errors import SchedulerError
from nats_scheduler.message.dialect import DIALECTS, Dialect, dialect_named
from nats_scheduler.message.schedule_form import FIELDS, ScheduleForm, diff
from nats_scheduler.observe.documents import ScheduleDocument
from nats_scheduler.observe.message_contents import ContentDocument
from nats_scheduler.observe.outlook import FIRES_AHEAD, OutlookDocument
from nats_scheduler.service import sidecar_answers
from nats_scheduler.service.change_endpoints import ChangeAnswer
from nats_scheduler.service.client import read
from nats_scheduler.service.content_answers import ContentAnswer
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
from nats_scheduler.web.earlier_versions import EarlierVersion, earlier_versions
from nats_scheduler.web.form_builder import OFFERED, Builder, builder_in, builder_of
from nats_scheduler.web.pages import ALL_STREAMS, NOT_FOUND, NextRow, rows_ahead
from nats_scheduler.web.request_checks import ADD, EDIT
from nats_scheduler.web.results import FormRow

SHOWN = (*(field.name for field in FIELDS), "policies")
"""The fields that show what is stored."""

TYPED = ("set", "unset", "body", "replace")
"""The fields that do not."""

MAX_CHANGES = 100
"""Changes of a schedule that are looked through for an earlier version."""

MAX_BODY_CHARS = 32 * 1024
"""Characters of a body that a form shows, as they are in the JSON of a request: half of what a request may have."""

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


def body_in_form(content: ContentDocument) -> str | None:
    """Return the body of a stored schedule if a form gives it back as it is, None for any other."""
    text = content["body"]
    if text is None or not content["body_complete"] or len(json.dumps(text)) > MAX_BODY_CHARS:
        return None
    is_kept = all(one in "\n\t" or unicodedata.category(one) != "Cc" for one in text)
    return text if is_kept else None


def digest_of(body: str | None) -> str:
    """Return what a form remembers of the body that it shows, "" of none."""
    return "" if body is None else sha256(body.encode("utf-8", "surrogatepass")).hexdigest()


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
    was_body: str = ""
    """The digest of the stored body if that is what the form began with, "" if it is not shown."""

    @property
    def has_other_body(self) -> bool:
        """True if another body is typed than the stored one, which the form began with."""
        return bool(self.was_body) and digest_of(self.typed["body"]) != self.was_body

    def edit(self) -> dict[str, object]:
        """Return the keys of the request for what differs; raises `ValueError`."""
        is_replaced = self.has_other_body if self.was_body else bool(self.typed["replace"])
        if self.typed["body"] and not self.was_body and not is_replaced:
            raise ValueError("a body is typed: choose to replace the stored one by it, or clear it")
        edit = diff(form_of(self.was), form_of(self.typed), self.dialect)
        asked: dict[str, object] = {
            "set": shown(edit.set) + headers_of(self.typed["set"]),
            "unset": [name.decode() for name in edit.unset] + names_of(self.typed["unset"]),
            "expected": self.sequence,
        }
        return {**asked, "body": self.typed["body"]} if is_replaced else asked

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

    def restored(self, version: EarlierVersion) -> "Written":
        """Return it with the fields and policies of an earlier version typed in."""
        fields = {name: value or "" for name, value in version.values.items() if name in self.was}
        stored = (line.partition(": ") for line in self.typed["policies"].split("\n") if line)
        policies = {**{name: value for name, _, value in stored}, **version.values}
        left = {name: value for name, value in policies.items() if name not in self.was and value is not None}
        lines = "\n".join(f"{name}: {value}" for name, value in left.items())
        return replace(self, typed={**self.typed, **fields, "policies": lines})

    def beside(
        self, schedule: ScheduleDocument | None, sequence: int, *, is_new: bool, body: str | None = None
    ) -> "Written":
        """Return it beside what is stored now; in an edit, a field in which nothing was typed has what is stored.

        `body` is the stored body if a form can show it.
        """
        now = fields_of(schedule)
        if is_new:
            return Written(self.stream, self.subject, self.spelling, sequence, self.typed, now)
        untouched = {name: now[name] for name in SHOWN if self.typed[name] == self.was[name]}
        has_own_body = self.has_other_body if self.was_body else bool(self.typed["body"] or self.typed["replace"])
        if not has_own_body:
            untouched["body"] = body or ""
        spelling = self.spelling if schedule is None else schedule["dialect"]
        # What was typed without a look at the stored body goes on to replace it only if that is chosen.
        digest = "" if has_own_body and not self.was_body else digest_of(body)
        return Written(self.stream, self.subject, spelling, sequence, {**self.typed, **untouched}, now, digest)


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
        except SchedulerError as error:
            raise WrongFormError(NOT_FOUND if code_of(error) == NOT_FOUND else UNAVAILABLE, str(error)) from None
        if schedule is None:
            raise WrongFormError(NOT_FOUND, f"'{subject}' has no valid schedule to edit: replace it by a new one")
        body = await self._body(stream, subject, schedule["sequence"])
        written, version = untouched(stream, subject, schedule["dialect"], schedule, body), None
        if restored := request.query_params.get("restore", ""):
            version = await self._version(written, sequence_of(restored))
            written = written.restored(version)
        return await self._page(request, "edit", written, await self._preview("edit", written), restored=version)

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
        typed = written_in(form)
        builder, fields = builder_in(form).written(form.text("step"), typed.typed, typed.was, typed.spelling)
        written = replace(typed, typed=fields)
        preview = await self._preview(do, written)
        if request.headers.get("x-fragment"):
            return self._control.pages.part(request, "preview.html", {"preview": preview})
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
        more = {"wrong": wrong, "form": form, "is_stale": beside is not None, "change": change, "builder": builder}
        return await self._page(request, do, written, preview, **more)

    async def _page(self, request: Request, do: str, written: Written, preview: Preview, **more: Any) -> Response:
        values = {"do": do, "written": written, "preview": preview, "wrong": "", "form": Form({})}
        builder: Builder = more.get("builder") or builder_of(written.typed, written.spelling)
        values |= {"change": None, "restored": None, "builder": builder, "builder_offered": OFFERED}
        is_wrong = more.get("wrong") or builder.wrong
        status = {"status": CONFLICT if more.get("is_stale") else UNPROCESSABLE} if is_wrong else {}
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
        except SchedulerError:
            return None  # the sidecar says in its answer to the change what is wrong

    async def _stored(self, stream: str, subject: str) -> ScheduleAnswer:
        return read(ScheduleAnswer, await self._link.ask("schedules.get", {"stream": stream, "subject": subject}))

    async def _body(self, stream: str, subject: str, sequence: int) -> str | None:
        """Return the body of a schedule with a sequence, None if a form cannot show it or the sidecar does not."""
        try:
            content = read(ContentAnswer, await self._link.ask("content.get", {"stream": stream, "subject": subject}))
        except SchedulerError:
            return None
        return body_in_form(content) if content["sequence"] == sequence else None

    async def _version(self, written: Written, change: int) -> EarlierVersion:
        """Return a schedule as it was before a change; raises `WrongFormError` if the record does not know that."""
        asked = {"stream": written.stream, "subject": written.subject, "limit": MAX_CHANGES}
        try:
            found = read(ChangesAnswer, await self._link.ask("changes.list", asked))["changes"]
        except SchedulerError as error:
            raise WrongFormError(NOT_FOUND if code_of(error) == NOT_FOUND else UNAVAILABLE, str(error)) from None
        version = earlier_versions(found, written.sequence).get(change)
        if version is None:
            expected = "a change that the record has, with its fields, and with each change since then"
            raise WrongFormError(NOT_FOUND, f"what it was before change {change} is not known: expected {expected}")
        return version

    async def _beside(self, do: str, written: Written) -> Written | None:
        """Return what was typed beside what is stored now; None if there is none, or it cannot be asked for."""
        try:
            found = await self._stored(written.stream, written.subject)
        except SchedulerError:
            return None
        stored, is_new = found["schedule"] or found["rejected"], do == "add"
        if stored is None:
            return None
        body = None if is_new else await self._body(written.stream, written.subject, stored["sequence"])
        return written.beside(found["schedule"], stored["sequence"], is_new=is_new, body=body)

    async def _change_to(self, written: Written) -> KeptChangeDocument | None:
        """Return who stored what is there now, and why; None if that was not recorded, or not yet."""
        asked = {"stream": written.stream, "subject": written.subject, "limit": 1}
        try:
            found = read(ChangesAnswer, await self._link.ask("changes.list", asked))["changes"]
        except SchedulerError:
            return None
        return next((one for one in found if one["sequence"] == written.sequence), None)

    @staticmethod
    def _asked(do: str, written: Written) -> dict[str, object]:
        place: dict[str, object] = {"stream": written.stream, "subject": written.subject}
        return place | (written.edit() if do == "edit" else written.addition())


def untouched(
    stream: str, subject: str, spelling: str, schedule: ScheduleDocument | None = None, body: str | None = None
) -> Written:
    """Return a form in which nothing is typed yet, of a schedule that is stored or of a new one.

    `body` is the stored body if a form can show it.
    """
    was, sequence = fields_of(schedule), 0 if schedule is None else schedule["sequence"]
    typed = {**was, **dict.fromkeys(TYPED, ""), "body": body or ""}
    return Written(stream, subject, spelling, sequence, typed, was, digest_of(body))


def written_in(form: Form) -> Written:
    """Return what a form says of a schedule; raises `WrongFormError` for a sequence that is none."""
    typed = {name: form.text(name) for name in (*SHOWN, *TYPED)} | {"body": form.whole("body")}
    was = {name: form.text(f"was_{name}") for name in SHOWN}
    sequence = sequence_of(form.text("sequence"))
    place = form.text("stream"), form.text("subject"), form.text("spelling")
    return Written(*place, sequence, typed, was, form.text("was_body"))
