"""Read the documents of a request, and plan what they ask for: by the code that reads and plans JSON files.

The rules:

- All problems are found before anything is done: those that the documents have by themselves, or else those that their
  streams have with them. The body of the error names them.
- YAML is not read: that cannot be done between fires. A schedule is read in one turn (`service.turns`), so there is a
  limit to what it consists of.

Cost: some 100 µs for each schedule, in slices, and what `service.stored_schedules` takes.
"""

from collections.abc import Generator, Sequence
from typing import Any

from nats_scheduler.files.document import Place, Problem
from nats_scheduler.files.planning import StreamPlan, plan_files, with_owner
from nats_scheduler.files.reading import StreamFile, values_reading
from nats_scheduler.message.subjects import is_api_subject
from nats_scheduler.service.control import SERVER_ERROR_CODE, a_request
from nats_scheduler.service.endpoint import Asked, encode_item, not_served, with_items
from nats_scheduler.service.file_schemas import DocumentsRequest, ProblemDocument
from nats_scheduler.service.micro import BAD_REQUEST, FORBIDDEN, NOT_FOUND, UNPROCESSABLE, ServiceError
from nats_scheduler.service.stored_schedules import StoredSchedules

DOCUMENTS = "documents"
"""The key of the documents, in requests and answers."""

MAX_VALUES = 512
"""Values (texts, numbers, lists, objects) of one schedule, or of a document beside its schedules: read in one turn."""

MAX_SCHEDULES = 2_500
"""Schedules of one request: more have no room in it unless most of them are wrong."""

MAX_PROBLEMS = 100
"""Problems that the body of an error names."""

PROBLEM_BYTES = 2_048

MAX_FIRST_CHARS = 400
"""Of the first problem in the sentence of an error."""


async def plans_of(asked: Asked, request: DocumentsRequest) -> list[StreamPlan]:
    """Return the plans for documents; raises `ServiceError` with all that is wrong with them."""
    files = await _read(asked, request)
    streams = asked.deployment.streams()
    _refuse(
        NOT_FOUND,
        [
            Problem(one.place_of_stream(), one.stream, "", not_served(one.stream))
            for one in files
            if one.stream not in streams
        ],
    )
    _refuse(
        FORBIDDEN,
        [
            Problem(file.place(number), file.stream, one.subject, a_request(one.subject))
            for file in files
            for number, one in enumerate(file.declared)
            if is_api_subject(one.subject)
        ],
    )
    plans, problems = await plan_files(
        asked.deployment.schedules,
        files,
        prune=request.prune,
        takes_over=request.take_over,
        means=StoredSchedules(asked),
    )
    _refuse(UNPROCESSABLE, problems)
    return plans


async def _read(asked: Asked, request: DocumentsRequest) -> list[StreamFile]:
    _refuse(BAD_REQUEST, await asked.turns.run(_too_long(request.documents)))
    files, problems = await asked.turns.run(values_reading(request.documents, DOCUMENTS))
    _refuse(BAD_REQUEST, problems)
    try:
        return with_owner(files, request.owner, prune=request.prune)
    except ValueError as error:
        raise ServiceError(BAD_REQUEST, str(error)) from None


def _too_long(documents: Sequence[Any]) -> Generator[None, None, list[Problem]]:
    """Find what is too much to be read between fires."""
    problems: list[Problem] = []
    count = 0
    for number, document in enumerate(documents):
        schedules = document.get("schedules") if isinstance(document, dict) else None
        parts: list[tuple[tuple[str | int, ...], Any]] = [((), document)]
        if isinstance(schedules, list):
            parts = [((), {key: value for key, value in document.items() if key != "schedules"})]
            count += len(schedules)
            if count > MAX_SCHEDULES:
                place = Place("", None, (DOCUMENTS, number, "schedules"))
                return [Problem(place, "", "", f"has more than {MAX_SCHEDULES:,} schedules: a request takes no more")]
            parts += [(("schedules", index), one) for index, one in enumerate(schedules)]
        for path, part in parts:
            if has_more_values(part, MAX_VALUES):
                place = Place("", None, (DOCUMENTS, number, *path))
                problems.append(Problem(place, "", "", f"has more than {MAX_VALUES:,} values: a request takes no more"))
            yield
    return problems


def has_more_values(value: Any, most: int) -> bool:
    """Return whether a value consists of more than so many values."""
    left, count = [value], 0
    while left and count <= most:
        one = left.pop()
        count += 1
        if isinstance(one, dict | list):
            count += len(one) if len(one) > most else 0
            left += (one.values() if isinstance(one, dict) else one) if count <= most else ()
    return count > most


def _refuse(code: int, problems: Sequence[Problem]) -> None:
    """Raise `ServiceError` if there is a problem: the sentence is about the first one, the body names all."""
    if not problems:
        return
    first, more = problems[0], len(problems) - 1
    named = [encode_item(_problem(one), PROBLEM_BYTES) for one in problems[:MAX_PROBLEMS]]
    sentence = f"{str(first)[:MAX_FIRST_CHARS]}; and {more:,} more, in the body" if more else str(first)
    headers = [] if first.code is None else [(SERVER_ERROR_CODE, b"%d" % first.code)]
    raise ServiceError(code, sentence, headers, with_items({"total": len(problems)}, "problems", named))


def _problem(one: Problem) -> ProblemDocument:
    return {
        "place": str(one.place),
        "stream": one.stream,
        "subject": one.subject,
        "message": one.text,
        "err_code": one.code,
    }
