"""The endpoint about what is wrong: the doctor's report, as far as this sidecar can examine it by itself.

Cost: see `doctor.sidecar`; a request within five minutes after an examination costs nothing.
"""

import json
from collections.abc import Sequence
from typing import TypeVar

from nats_scheduler.observe.finding_documents import FindingDocument
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.service.encoding import FRAME_BYTES, encode_items, with_items
from nats_scheduler.service.endpoint import Asked, Document
from nats_scheduler.service.schemas import NoKeys

T = TypeVar("T")


async def list_findings(asked: Asked, _request: NoKeys) -> Document:
    """Return what is wrong, worst first, as many findings as fit into an answer."""
    examination = await asked.deployment.examination(asked.turns)
    report, room = examination.report, asked.room - FRAME_BYTES
    head = {
        "at": format_rfc3339(examination.at),
        "instance": asked.deployment.instance,
        "worst": report["worst"],
        "unlisted": _fitting(report["unlisted"], room // 4),
        "counts": report["counts"],
        "unexamined": _fitting(examination.unexamined, room // 4),
    }
    left = room - len(json.dumps(head))
    items = await asked.turns.run(encode_items(report["findings"], _as_it_is, left))
    return with_items({**head, "omitted": len(report["findings"]) - len(items)}, "findings", items)


def _as_it_is(finding: FindingDocument) -> FindingDocument:
    return finding


def _fitting(rows: Sequence[T], room: int) -> Sequence[T]:
    """Return the first rows that fit into so many bytes as JSON: there may be some for each of a thousand streams."""
    for number, row in enumerate(rows):
        room -= len(json.dumps(row)) + 2
        if room < 0:
            return rows[:number]
    return rows
