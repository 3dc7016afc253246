"""The queries of the page `internals/table.md`, on a file that the code of the sidecar wrote.

The rule: each block of the page is run as it stands, and prints what the page shows. Python's SQLite runs them, since
the program `sqlite3` may not be there; "now" is noon of the day of the example. The file is open meanwhile, as that of
a sidecar that runs.
"""

import shlex
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from nats_scheduler.engine.inputs import CaughtUp, MessagesRead, ServerLimits, Stored
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.message.dialect import DIALECTS
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.runtime.schedule_file import FILE_NAME, ScheduleFile, StreamRows
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.manual_clock import START, ManualClock
from tests.engine.direct import Desk, schedule, stored_fire
from tests.house.sources import ROOT
from tests.site.blocks import Block, steps

PAGE = ROOT / "docs" / "internals" / "table.md"
BOOT = "the boot of the test"
COMMAND = ["sqlite3", "-readonly", FILE_NAME]
FEWEST_QUERIES = 10
NOON = START + 12 * 3_600 * SECOND
BERLIN = {"Nats_Schedule_Time_Zone": "Europe/Berlin"}


def minutes(number: float) -> int:
    """Return the instant (ns) so many minutes after noon, on the day of the example."""
    return NOON + int(number * 60 * SECOND)


def stored(pattern: str, sequence: int, subject: str, target: str, after: float, **more: str) -> StoredMessage:
    """Make a schedule that was stored some minutes after noon."""
    return schedule(pattern, sequence, subject, stored_at=minutes(after), body=b"", Nats_Schedule_Target=target, **more)


DONE = stored("@at 2026-01-01T11:59:00Z", 3, "orders.1.remind", "mail.send", -90)
OVERDUE = stored("@at 2026-01-01T11:58:30Z", 4, "orders.2.remind", "mail.send", -80)
ORDERS = [
    stored("0 30 9 * * *", 1, "reports.daily", "reports.run", -179, **BERLIN),
    stored("0 0 8 * * 1", 2, "reports.weekly", "reports.run", -178, **BERLIN),
    DONE,
    OVERDUE,
    stored("@at 2026-01-01T12:20:00Z", 5, "orders.3.remind", "mail.send", -40),
    stored("@at 2026-01-01T12:20:30Z", 6, "orders.4.remind", "mail.send", -30),
    stored("@at 2026-01-01T14:00:00Z", 7, "orders.5.remind", "sms.send", -20, Nats_Schedule_TTL="1h", Nats_TTL="1h"),
    stored("@every 15m", 8, "poll.shop", "poll.run", -10),
    stored("@every 15m", 9, "poll.stock", "poll.run", -9),
    stored("@every 15m", 10, "poll.mail", "poll.run", -8, Nats_Schedule_X_Missed="all"),
]
BILLING = [
    stored("@at 2026-02-01T00:00:00Z", 41, "invoice.7", "invoice.send", -170),
    stored("0 0 6 1 * *", 42, "invoice.all", "invoice.make", -169, Nats_Schedule_X_Jitter="10m"),
]


def served(rows: StreamRows, messages: Sequence[StoredMessage]) -> Desk:
    """Have an engine read the stream of these rows."""
    desk = Desk()
    limits = ServerLimits(guard=True, look_ahead=SECOND)
    rules = StreamRules(rows.name, (">",), allow_msg_ttl=True)
    desk.engine = StreamEngine(rules, DIALECTS, limits, table=rows.table)
    rows.attach(desk.engine, lambda error: pytest.fail(str(error)))
    desk.now = minutes(-5)
    desk.step(MessagesRead(messages), CaughtUp())
    return desk


def example(folder: Path) -> None:
    """Write the file of the page: of its schedules one is done and not purged, and one is overdue."""
    file = ScheduleFile(ManualClock(), pytest.fail)
    assert file.open(folder, BOOT) == ""
    orders = served(file.stream("ORDERS", "emulated", "of the test"), ORDERS)
    served(file.stream("BILLING", "portable", "of the test"), BILLING)
    orders.now = minutes(-1)
    orders.step()
    orders.found(DONE)
    fire = orders.fire
    orders.concluded(fire, Stored(11))
    orders.read(stored_fire(fire, 11, orders.now))
    file.close()


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Have the file of the page, which a process has open."""
    folder = tmp_path_factory.mktemp("data")
    example(folder)
    file = ScheduleFile(ManualClock(), pytest.fail)
    assert file.open(folder, BOOT) == ""
    yield folder / FILE_NAME
    file.close()


def queries() -> list[tuple[Block, str]]:
    """List the blocks of the page with queries, and what the page shows of each."""
    found = []
    for block, printed in steps(PAGE):
        if block.kind == "sh":
            assert printed is not None, f"{block.where}: what it prints is shown"
            found.append((block, printed.text))
    return found


def answer(database: Path, block: Block) -> str:
    """Run a block as the program `sqlite3` would at noon of the day of the example, and return what it prints."""
    *command, statement = shlex.split(block.text)
    assert command == COMMAND, block.where
    connection = sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)
    connection.create_function("strftime", 2, at_noon)
    rows = connection.execute(statement).fetchall()
    connection.close()
    return "".join("|".join("" if value is None else str(value) for value in row) + "\n" for row in rows)


def at_noon(form: str, when: str) -> str:
    """Answer in place of SQLite, which knows the time of the machine."""
    assert (form, when) == ("%s", "now")
    return str(NOON // SECOND)


def test_each_query_of_the_page_prints_what_the_page_shows(database: Path) -> None:
    found = queries()
    assert len(found) >= FEWEST_QUERIES
    assert {block.where: answer(database, block) for block, _ in found} == {block.where: text for block, text in found}
