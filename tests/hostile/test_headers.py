"""Header blocks that no client library would send are read cheaply, and never raise."""

import pytest
from hypothesis import given

from nats_scheduler.engine.actions import Report
from nats_scheduler.engine.events import FireRefused
from nats_scheduler.engine.inputs import Refused, Unknown
from nats_scheduler.message.definition import Definition
from nats_scheduler.message.dialect import DIALECTS, schedule_fields
from nats_scheduler.message.generated import generated_block
from nats_scheduler.message.headers import header_items, header_value, without_headers
from nats_scheduler.message.reading import Reading, read_message
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.testing.manual_clock import START
from tests.engine.direct import Desk
from tests.hostile.effort import SECONDS_A_TEXT, at_most, examples
from tests.hostile.texts import LONG
from tests.message.blocks import odd_blocks

pytestmark = pytest.mark.clause("hostile-headers")

RULES = StreamRules("S", (">",), allow_msg_ttl=True)
SCHEDULE = b"NATS/1.0\r\nNats-Schedule: @every 1s\r\nNats-Schedule-Target: out\r\n"

BLOCKS = {
    "ten thousand headers": SCHEDULE + b"".join(b"A%d: \r\n" % number for number in range(8_000)) + b"\r\n",
    "ten thousand of ours": SCHEDULE + b"".join(b"Nats-Schedule-%d:\r\n" % n for n in range(3_000)) + b"\r\n",
    "one header": SCHEDULE + b"A: " + b"x" * LONG + b"\r\n\r\n",
    "one name": SCHEDULE + b"A" * LONG + b":\r\n\r\n",
    "names without a colon": SCHEDULE + b"Nats-Schedule\r\n" * 4_000 + b"\r\n",
    "doubled names": b"NATS/1.0\r\n" + b"Nats-Schedule" * 4_000 + b": @every 1s\r\n\r\n",
    "the same again": SCHEDULE * 800 + b"\r\n",
    "returns": SCHEDULE + b"\r" * LONG + b"\r\n\r\n",
    "line feeds": SCHEDULE + b"\n" * LONG + b"\r\n\r\n",
    "feeds before ours": SCHEDULE + b"\nNats-Schedule" * 4_000 + b"\r\n\r\n",
    "ends": SCHEDULE + b"\r\n" * (LONG // 2),
    "no end": SCHEDULE + b"A: b",
    "no end at all": SCHEDULE[:-2],
    "NUL": SCHEDULE + b"\0" * LONG,
    "colons": SCHEDULE + b":" * LONG + b"\r\n\r\n",
    "a blank before the colon": SCHEDULE.replace(b":", b" :") + b"\r\n",
    "blanks behind the colon": SCHEDULE.replace(b": ", b":" + b" " * 20_000) + b"\r\n",
    "a status": b"NATS/1.0 503 " + b"x" * LONG + b"\r\n" + SCHEDULE[10:] + b"\r\n",
    "an identity": SCHEDULE + b"Nats-Msg-Id: nats-scheduler:" + b"9" * LONG + b"\r\n\r\n",
    "an identity of colons": SCHEDULE + b"Nats-Msg-Id: nats-scheduler:" + b"1:" * (LONG // 2) + b"\r\n\r\n",
    "a target of blanks": b"NATS/1.0\r\nNats-Schedule: @every 1s\r\nNats-Schedule-Target: "
    + b"\t" * LONG
    + b"\r\n\r\n",
    "nothing": b"",
    "no block": b"\xff" * LONG,
}


def consequences(block: bytes) -> None:
    """Read a block in every way there is, and build what it would fire."""
    header_items(block)
    for dialect in DIALECTS:
        schedule_fields(block, dialect)
        for name in dialect.names:
            header_value(block, name)
    without_headers(block, [b"Nats-Msg-Id"], [b"Nats-Schedule"])
    reading = read_message(block, "s.one", START, RULES, DIALECTS)
    assert isinstance(reading, Reading | None)
    if reading is not None and isinstance(reading.definition, Definition):
        made = generated_block(block, *reading.definition, "s.one", START)
        read_message(made, "out", START, RULES, DIALECTS)


def live_through(block: bytes) -> None:
    """Let an engine find the message, fire it where it can, and be informed of a refusal or an unknown outcome."""
    message = StoredMessage("s.one", 1, START, block, b"")
    desk = Desk(message)
    for second, outcome in ((2, Unknown("?")), (4, Refused(400, 10054, "no"))):
        desk.at(second)
        desk.found(message)
        for fire in desk.fires:
            desk.concluded(fire, outcome)
    told = [action.event for action in desk.actions if isinstance(action, Report)]
    assert all(event.code for event in told if isinstance(event, FireRefused))


def test_a_block_at_the_limit_is_cheap() -> None:
    for name, block in BLOCKS.items():
        with at_most(SECONDS_A_TEXT, name):
            consequences(block)
        live_through(block)


@pytest.mark.slow
@examples(150)
@given(odd_blocks)
def test_no_block_breaks_an_engine(block: bytes) -> None:
    consequences(block)
    live_through(block)
