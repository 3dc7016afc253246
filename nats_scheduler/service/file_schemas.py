"""The requests and answers of `export`, `diff` and `apply`; the rules are those of `service.schemas`.

A document is one of a JSON file of schedules (`files.models`). It is not read here, but schedule by schedule
(`files.reading`), so that a long request delays no fire, and so that each problem is reported with its place.
"""

from typing import Annotated

from pydantic import AfterValidator, Field, SkipValidation
from typing_extensions import TypedDict  # not that of typing: pydantic refuses it before Python 3.12

from nats_scheduler.control.declared import check_owner
from nats_scheduler.files.models import DocumentModel
from nats_scheduler.observe.documents import ChangeDocument, PlanDocument, StepDocument
from nats_scheduler.service.control import SignedRequest
from nats_scheduler.service.schemas import (
    DEFAULT_PAGE_LENGTH,
    Answer,
    CursorText,
    Limit,
    Request,
    StreamName,
    SubjectFilter,
)


def _owner(text: str | None) -> str | None:
    check_owner(text)
    return text


MAX_DOCUMENTS = 64
"""Documents of one request."""

OneDocument = SkipValidation[DocumentModel]


class ExportRequest(Request):
    """A request for the schedules of a stream as a document, by subject."""

    stream: StreamName
    subjects: SubjectFilter = None
    owner: Annotated[
        str | None,
        AfterValidator(_owner),
        Field(description="Only schedules with this label, `X-Owner`; the document names the owner."),
    ] = None
    cursor: CursorText = None
    limit: Limit = DEFAULT_PAGE_LENGTH


class DocumentsRequest(Request):
    """A request with documents of schedules."""

    documents: Annotated[
        list[OneDocument],
        Field(
            min_length=1,
            max_length=MAX_DOCUMENTS,
            description="Documents as those of a JSON file of schedules; each names its stream.",
        ),
    ]
    owner: Annotated[
        str | None,
        AfterValidator(_owner),
        Field(description="The label, `X-Owner`, of all schedules in the documents; null for what they say."),
    ] = None
    prune: Annotated[
        bool, Field(description="Whether schedules with the owner's label that are in no document are removed.")
    ] = False
    take_over: Annotated[
        bool, Field(description="Whether schedules that carry the label of another owner are changed too.")
    ] = False


class DiffRequest(DocumentsRequest):
    """A request to compare documents with their streams."""

    cursor: CursorText = None


class ApplyRequest(SignedRequest, DocumentsRequest):
    """A request to make the schedules of streams those of documents."""


class LeftOutDocument(TypedDict):
    """A schedule that no document of a request can have."""

    subject: str
    reason: str


class ExportAnswer(Answer):
    """A page of schedules, by subject, as a document that `schedules.apply` takes as it is."""

    stream: str
    read_through: int
    """The sequence up to which the stream was read to find the subjects."""
    left_out: list[LeftOutDocument]
    """Schedules of this page that are not in the document, and why."""
    cursor: str | None
    documents: list[OneDocument]
    """One document, with the schedules of this page."""


class DiffAnswer(Answer):
    """What `schedules.apply` would do, by stream and subject."""

    differences: bool
    """Whether it would do anything."""
    streams: list[PlanDocument]
    cursor: str | None
    """For the steps that did not fit into the answer; null if these are the last ones."""
    steps: list[StepDocument]


class FailureDocument(TypedDict):
    """A schedule that was not changed, or of which nothing shows whether it was."""

    stream: str
    subject: str
    code: int
    """The code that a request for this schedule alone would get."""
    err_code: int | None
    """The server's, if it has one for this."""
    message: str
    sequence: int | None
    """Of the message that is there now, 0 if there is none; null if that is not known."""


class ApplyAnswer(Answer):
    """What became of each schedule that differed."""

    streams: list[PlanDocument]
    left: int
    """How many were not tried, because the time or the room of an answer was over: the same request does them."""
    errors: list[FailureDocument]
    changes: list[ChangeDocument]
    """What was done, by stream and subject."""


class ProblemDocument(TypedDict):
    """One thing that is wrong with documents: the body of an error 400, 403, 404 or 422 has some."""

    place: str
    """Keys and positions that lead to it, such as `documents.0.schedules.3.ttl`."""
    stream: str
    subject: str
    message: str
    err_code: int | None
