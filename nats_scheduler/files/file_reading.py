"""Read files of schedules: what they declare, and all that is wrong with them, each with its file and line.

Rule: one wrong schedule hides no other: all problems of all files are found, and nothing is declared if there is one.
Cost: 10,000 schedules are read in about 1 s. Limit: whether a stream accepts them is found by `control.plan`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from nats_scheduler.control.declared import (
    AT,
    EVERY,
    Content,
    Declared,
    Order,
    Readable,
    order_fault,
    policy_key,
    reserved_names,
)
from nats_scheduler.files.document import FileDocument, FilePlace, Path, Problem, TextError, place_in
from nats_scheduler.files.models import (
    BODIES,
    PATTERNS,
    RAW,
    DocumentModel,
    HeaderModel,
    PoliciesModel,
    ScheduleModel,
    read_policy_key,
)
from nats_scheduler.message.dialect import ADR51, DIALECTS, Dialect, dialect_named
from nats_scheduler.message.headers import block_of_lines, decoded
from nats_scheduler.message.policies import POLICY_NAMES
from nats_scheduler.message.rejection import Rejection
from nats_scheduler.message.schedule_form import BESIDE_PATTERN, ScheduleForm
from nats_scheduler.schedule.invalid import MAX_SHOWN_CHARS

_POLICIES = {policy_key(name): name for name in POLICY_NAMES}
_WORDS_OF_HEADERS = frozenset(ScheduleModel.model_fields) - {"subject", "paused", *RAW, *PATTERNS, *BODIES}
_TEXT = "text of one line; a number, or a word such as true, needs quotes to be text"
_EXPECTED: Mapping[str, str] = {
    "$schema": "the address of a schema",
    "a document": "a map with stream and schedules",
    "a header": "a map with name and value",
    "a line": "a text of one line, or a map with base64",
    "a schedule": "a map with subject and a pattern",
    "body": "text; a number, or a word such as true, needs quotes to be text",
    "headers": "a list of headers, each with name and value",
    "lines": "a list of header lines",
    "name": "the name of a header",
    "order": "sorted, or a list of the names of all headers",
    "owner": "a text of 1 to 256 characters",
    "paused": "true or false",
    "policies": "a map of policies, such as {missed: skip}",
    "schedules": "a list of schedules",
    "spelling": "adr51 or portable",
    **{field.name: "true or false" for field in BESIDE_PATTERN if field.on},
    **{field.name: "a text such as '5m', or whole seconds" for field in BESIDE_PATTERN if field.kind == "duration"},
}
_ITEMS = {"schedules": "a schedule", "headers": "a header", "order": "a name", "lines": "a line"}
"""The name of an item of a list, by the key of the list."""

_M = TypeVar("_M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class StreamFile:
    """One document: the schedules that a file declares of one stream."""

    file: str
    stream: str
    owner: str | None
    declared: tuple[Declared, ...]
    document: FileDocument = field(repr=False)

    def owned_by(self, owner: str) -> StreamFile:
        """Return the same with another owner."""
        return replace(self, owner=owner)

    def place_of_stream(self) -> FilePlace:
        """Return where the stream is named."""
        return place_in(self.file, self.document, ("stream",))

    def place(self, index: int, header: str = "") -> FilePlace:
        """Return where a schedule is, or the key of one of its headers."""
        given = self.document.value["schedules"][index]
        return place_in(self.file, self.document, ("schedules", index, *_key_of(header, given)))


def read_files(texts: Sequence[tuple[str, bytes]]) -> tuple[list[StreamFile], list[Problem]]:
    """Read files, each a name and its content; return their documents and their problems."""
    # A sidecar receives values and no texts: it does without the library that reads them.
    from nats_scheduler.files.text import read_documents

    found: list[StreamFile] = []
    problems: list[Problem] = []
    for name, content in texts:
        try:
            documents = read_documents(content.decode())
        except UnicodeDecodeError as error:
            problems.append(Problem(FilePlace(name, content.count(b"\n", 0, error.start) + 1), "", "", "is not UTF-8"))
            continue
        except TextError as error:
            problems.append(Problem(FilePlace(name, error.line), "", "", str(error)))
            continue
        if not documents:
            problems.append(Problem(FilePlace(name, None), "", "", "is empty: expected stream and schedules"))
        for document in documents:
            reading = _Reading(name, document)
            one = reading.stream_file()
            found += [] if one is None else [one]
            problems += sorted(reading.problems, key=lambda problem: problem.place.line or 0)
    problems += _declared_twice(found)
    return found, problems


class _Reading:
    """The reading of one document."""

    def __init__(self, file: str, document: FileDocument) -> None:
        self._file = file
        self._document = document
        self.problems: list[Problem] = []

    def stream_file(self) -> StreamFile | None:
        """Return what the document declares, None if it has problems."""
        if not isinstance(self._document.value, dict):
            self._add((), f"a document: expected {_EXPECTED['a document']}")
            return None
        schedules = self._document.value.get("schedules")
        whole = self._validated(DocumentModel, {**self._document.value, "schedules": []}, ())
        if not isinstance(schedules, list):
            self._add(("schedules",), f"schedules of {_shown(schedules)}: expected {_EXPECTED['schedules']}")
            return None
        dialect = dialect_named(whole.spelling if whole else None) or ADR51
        declared: list[Declared] = []
        for index, one in enumerate(schedules):
            found = self._declared(one, ("schedules", index), dialect)
            declared += [] if found is None else [found]
        if whole is None or self.problems:
            return None
        return StreamFile(self._file, whole.stream, whole.owner, tuple(declared), self._document)

    # -- one schedule -----------------------------------------------------------------------------------------------

    def _declared(self, given: Any, path: Path, dialect: Dialect) -> Declared | None:
        if isinstance(given, dict):
            self._check_keys(given, path)
        one = self._validated(ScheduleModel, given, path)
        if one is None:
            return None
        content = self._content(one, path, dialect_named(one.spelling) or dialect)
        body = (one.body_base64 or b"") if one.body is None else one.body.encode()
        return Declared(one.subject, content, body, one.paused)

    def _check_keys(self, given: Mapping[str, Any], path: Path) -> None:
        """Report keys that exclude each other, and a pattern that is missing."""
        kinds = [key for key in (*RAW, *PATTERNS) if key in given]
        if len(kinds) != 1:
            said = " and ".join(kinds) or "no pattern"
            self._add((*path, *kinds[1:2]), f"{said}: expected one of {', '.join((*PATTERNS, *RAW))}")
        elif kinds[0] in RAW:
            for key in sorted(key for key in _WORDS_OF_HEADERS if key in given):
                self._add((*path, key), f"{key} is beside {kinds[0]}, which has all headers: expected one of them")
        if all(key in given for key in BODIES):
            self._add((*path, BODIES[1]), f"{' and '.join(BODIES)}: expected one of them")

    def _content(self, one: ScheduleModel, path: Path, dialect: Dialect) -> Content:
        if one.block_base64 is not None:
            return one.block_base64
        if one.lines is None:
            return self._readable(one, path, dialect)
        return block_of_lines([line.encode() if isinstance(line, str) else line.base64 for line in one.lines])

    def _readable(self, one: ScheduleModel, path: Path, dialect: Dialect) -> Readable:
        order: Order = "sorted" if one.order == "sorted" else tuple(name.encode() for name in one.order or ())
        pattern = one.cron or ""
        if one.at is not None or one.every is not None:
            pattern = f"{AT}{one.at}" if one.at is not None else f"{EVERY}{one.every}"
        fields: dict[str, Any] = {field.name: field.text(getattr(one, field.name)) for field in BESIDE_PATTERN}
        headers = tuple(self._headers(one, path, dialect))
        form = replace(ScheduleForm(pattern, policies=tuple(_policies(one)), headers=headers), **fields)
        readable = Readable(form, dialect, "usual" if one.order is None else order)
        if fault := order_fault(readable):
            self._add((*path, "order"), f"order of {_shown(one.order)}: expected {fault}")
        return readable

    def _headers(self, one: ScheduleModel, path: Path, dialect: Dialect) -> Iterator[tuple[str, str]]:
        reserved = reserved_names(dialect)
        for at, header in enumerate(one.headers or ()):
            place, name = (*path, "headers", at), header.name.encode()
            if name in reserved:
                self._add(place, f"header {header.name}: expected the key {reserved[name]} instead")
            if (header.value is None) == (header.value_base64 is None):
                self._add(place, f"header {header.name}: expected either value or value_base64")
            yield header.name, decoded(header.value_base64 or b"") if header.value is None else header.value

    # -- problems ---------------------------------------------------------------------------------------------------

    def _validated(self, model: type[_M], value: Any, path: Path) -> _M | None:
        """Return a value as a model; None if it is none, which is reported."""
        try:
            return model.model_validate(value)
        except ValidationError as error:
            self._take(error, path)
            return None

    def _take(self, error: ValidationError, around: Path) -> None:
        """Report what the models have found in a value, once for each part of it."""
        seen = set[Path]()
        for one in error.errors(include_url=False):
            path, value = self._path((*around, *one["loc"]))
            if path in seen:
                continue
            seen.add(path)
            if one["type"] == "missing":
                self._add(path, f"{one['loc'][-1]} is missing")
            elif value is None:
                self._add(path, f'{path[-1]} is empty: expected a value ("" for an empty text), or no key')
            elif one["type"] == "string_unicode":
                self._add(path, f"{_named(path)} of {_shown(value)}: expected text without half of a surrogate pair")
            elif one["type"] == "extra_forbidden" and _model_at(path) is PoliciesModel:
                self._add(path, f"policy {path[-1]} of {_shown(value)} {_policy_fault(str(path[-1]))}")
            elif one["type"] == "extra_forbidden":
                keys = [field.alias or name for name, field in _model_at(path).model_fields.items()]
                self._add(path, f"{path[-1]} is an unknown key: expected one of {', '.join(keys)}")
            else:
                key = _named(path)
                self._add(path, f"{key} of {_shown(value)}: expected {_expected(key, value)}")

    def _path(self, location: tuple[str | int, ...]) -> tuple[Path, Any]:
        """Return where an error is in the document, without the names of the types that were tried, and its value."""
        path: Path = ()
        value: Any = self._document.value
        for part in location:
            key = _written(value, part) if path[-1:] == ("policies",) else part
            in_list = isinstance(value, list) and isinstance(key, int) and key < len(value)
            if not in_list and not (isinstance(value, dict) and key in value):
                break
            value = value[key]
            path = (*path, key)
        return path, value

    def _add(self, path: Path, text: str) -> None:
        stream, subject = self._document.value, ""
        if isinstance(stream, dict) and path[:1] == ("schedules",) and len(path) > 1:
            schedule = stream["schedules"][path[1]] if isinstance(path[1], int) else None
            subject = str(schedule.get("subject", "")) if isinstance(schedule, dict) else ""
        name = str(stream.get("stream", "")) if isinstance(stream, dict) else ""
        self.problems.append(Problem(place_in(self._file, self._document, path), name, subject, text))


def _declared_twice(files: Sequence[StreamFile]) -> Iterator[Problem]:
    """Yield the schedules that are declared a second time, in whichever file."""
    first: dict[tuple[str, str], FilePlace] = {}
    for one in files:
        for index, declared in enumerate(one.declared):
            key = (one.stream, declared.subject)
            if key in first:
                text = f"is declared twice in stream {one.stream}: first at {first[key]}"
                yield Problem(one.place(index), one.stream, declared.subject, text)
            else:
                first[key] = one.place(index)


def _policies(one: ScheduleModel) -> Iterator[tuple[str, str]]:
    given = {} if one.policies is None else one.policies.model_dump(exclude_none=True)
    for key, value in sorted(given.items(), key=lambda item: _POLICIES[item[0]]):
        yield _POLICIES[key], str(value).lower() if isinstance(value, bool) else str(value)


def _written(policies: Any, key: str | int) -> str | int:
    """Return the key of a policy as a file has it."""
    if not isinstance(policies, dict) or key in policies:
        return key
    return next((one for one in policies if read_policy_key(str(one)) == key), key)


def _policy_fault(key: str) -> str:
    """Return what is wrong with a name of a policy that stays beside those that were read."""
    read = read_policy_key(key)
    return read.reason if isinstance(read, Rejection) else f"is given twice: {read} is the same policy"


def _model_at(path: Path) -> type[BaseModel]:
    if "headers" in path:
        return HeaderModel
    if "policies" in path:
        return PoliciesModel
    return ScheduleModel if len(path) > 2 else DocumentModel


def _named(path: Path) -> str:
    """Return what an error calls a value: its key, or that of the list that it is in."""
    key = next((part for part in reversed(path) if isinstance(part, str)), "a document")
    return key if path[-1:] == (key,) or not path else _ITEMS.get(key, key)


def _expected(key: str, value: object) -> str:
    if key == "value" and isinstance(value, str):
        return "a text of one line; a value with control characters goes into value_base64"
    return _EXPECTED.get(key, "base64" if key.endswith("base64") else _TEXT)


def _key_of(header: str, given: Mapping[str, Any]) -> Path:
    """Return the key in which a schedule has a header; () for a header that has none."""
    name = header.encode("utf-8", "surrogateescape")
    for dialect in DIALECTS:
        if name == dialect.schedule:
            return tuple(key for key in PATTERNS if key in given)[:1]
        if (key := reserved_names(dialect).get(name)) is not None:
            first, *rest = key.split(".")
            return (first, *(_written(given.get(first), one) for one in rest))
    return ()


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= MAX_SHOWN_CHARS else text[:MAX_SHOWN_CHARS] + "…"
