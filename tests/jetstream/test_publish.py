"""Each fire is concluded once, also if its acknowledgement comes late, twice, or together with many others.

It tests `jetstream/acknowledgements.py` too.
"""

import asyncio
import re
from collections.abc import Callable
from itertools import pairwise

from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.inputs import FiresStored, PublishConcluded, Stored, Unknown
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.denials import Denial
from nats_scheduler.jetstream.publish import MAX_BYTES_IN_FLIGHT, Publisher
from nats_scheduler.jetstream.wire import RunReader, Sink
from tests.harness.waiting import eventually

STORED = b'{"stream":"S", "seq":%d}'


class Wire(Connection):
    """Notes what is written, and delivers acknowledgements one by one or in runs."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self._parts = {}
        self._checks, self._checks_begun = {}, 0
        self._loop = asyncio.get_running_loop()
        self._sinks: list[Sink] = []
        self._runs: list[RunReader] = []
        self._called: list[Callable[[], None]] = []

    def inbox(self, name: str) -> str:
        return f"_INBOX.{name}"

    def subscribe(self, subject: str, sink: Sink, queue_group: str = "") -> int:
        self._sinks.append(sink)
        return len(self._sinks)

    @property
    def is_lost(self) -> bool:
        return False

    def read_runs(self, number: int, run: RunReader, *, short: bool = False) -> None:
        self._runs.append(run)

    def after_this_chunk(self, listener: Callable[[], None]) -> None:
        self._called.append(listener)

    def when_denied(self, listener: Callable[[Denial], None]) -> Callable[[], None]:
        return lambda: None

    def write(self, frames: bytes) -> None:
        self.written.append(frames)

    @property
    def replies(self) -> list[bytes]:
        """The reply subjects of the fires, in the order in which they were sent."""
        return re.findall(rb"HPUB out (\S+) ", b"".join(self.written))

    def acknowledge(self, *numbers: int, at_once: bool) -> None:
        """Acknowledge fires by their place, from 1 on, each as stored under that plus a hundred."""
        bodies, replies = [STORED % (100 + number) for number in numbers], self.replies
        if at_once:
            shape = b"MSG %b 1 %d\r\n%b\r\n"
            frames = b"".join(
                shape % (replies[n - 1], len(body), body) for n, body in zip(numbers, bodies, strict=True)
            )
            assert self._runs[0](frames, 0) == len(frames)
        else:
            for number, body in zip(numbers, bodies, strict=True):
                self._sinks[0](replies[number - 1], b"", b"", body)
        called, self._called = self._called, []
        for listener in called:
            listener()

    def answer(self, number: int, body: bytes, block: bytes = b"") -> None:
        """Answer a fire, as the server or as another client."""
        self._sinks[0](self.replies[number - 1], b"", block, body)


class Course:
    """A publisher, its inputs to the engine, and the wire."""

    def __init__(self, ack_timeout: float = 60.0) -> None:
        self.wire = Wire()
        self.received: list[PublishConcluded | FiresStored] = []
        self.acknowledged: list[int] = []
        note = self.acknowledged.extend
        self.publisher = Publisher(
            self.wire, "S", self.received.append, window=100, ack_timeout=ack_timeout, acknowledged=note
        )

    def publish(self, count: int, body: bytes = b"") -> list[Fire]:
        """Publish fires and return them."""
        fires = [Fire("s", number, number, None, "out", b"NATS/1.0\r\n\r\n", body) for number in range(1, count + 1)]
        self.publisher.publish(fires)
        return fires


async def test_large_fires_are_in_flight_up_to_a_limit() -> None:
    course = Course()
    course.publish(2, b"x" * (MAX_BYTES_IN_FLIGHT + 1))
    assert course.publisher.in_flight == 1, "one that is larger than the limit goes alone"
    course.wire.acknowledge(1, at_once=False)
    assert course.publisher.in_flight == 1
    course = Course()
    course.publish(9, b"x" * (MAX_BYTES_IN_FLIGHT // 4))
    assert course.publisher.in_flight == 4
    course.publish(3)
    assert course.publisher.in_flight == 7
    course.wire.acknowledge(1, 2, 5, at_once=True)
    assert course.publisher.in_flight == 6
    course.wire.acknowledge(3, at_once=False)
    assert course.publisher.in_flight == 6
    course.publisher.end("the end")
    assert len([one for one in course.received if isinstance(one, PublishConcluded)]) == 9


async def test_what_is_acknowledged_again_is_passed_over() -> None:
    course = Course()
    fires = course.publish(3)
    course.wire.acknowledge(1, at_once=False)
    course.wire.acknowledge(1, 2, 2, 3, at_once=True)
    course.wire.acknowledge(3, at_once=False)
    assert course.received == [PublishConcluded(fires[0], Stored(101)), FiresStored(fires[1:], [102, 103])]


async def test_what_is_not_acknowledged_in_time_is_unknown() -> None:
    course = Course(ack_timeout=0.1)
    first = course.publish(3)
    course.wire.acknowledge(2, at_once=True)
    await eventually(lambda: len(course.received) == 3)
    unknown = Unknown("no acknowledgement within 0.1 s")
    assert course.received[1:] == [PublishConcluded(first[0], unknown), PublishConcluded(first[2], unknown)]
    second = course.publish(2)
    course.wire.acknowledge(1, 4, 3, 5, at_once=True)
    assert course.received[3:] == [FiresStored(second, [104, 105])]
    assert course.acknowledged == [102, 101, 104, 103, 105], "where they are stored is known all the same"


async def test_the_answer_of_somebody_else_takes_no_place_of_the_servers() -> None:
    course = Course()
    [fire] = course.publish(1)
    strangers = [
        b"",
        b"thanks",
        b'{"error":{"code":400,"err_code":10071,"description":"no"}}',
        b'{"error":"busy"}',
        b'{"stream":"OTHER","seq":5}',
        b'{"stream":"S","seq":0}',
    ]
    for body in strangers:
        course.wire.answer(1, body)
    course.wire.answer(1, STORED % 5, b"NATS/1.0\r\nNats-Stream: OTHER\r\nNats-Subject: any\r\n\r\n")  # a direct get
    assert (course.received, course.publisher.in_flight) == ([], 1)
    course.wire.acknowledge(1, at_once=False)
    assert course.received == [PublishConcluded(fire, Stored(101))]


async def test_who_sees_one_reply_subject_can_answer_no_other_fire() -> None:
    """Neither the next one of this stream, nor those of another one."""
    course, fires = Course(), list[Fire]()
    for _ in range(50):
        fires += course.publish(1)
    keys, numbers = zip(*(reply.split(b".")[-2:] for reply in course.wire.replies), strict=True)
    assert len(set(keys)) == 1
    steps = [int(later) - int(earlier) for earlier, later in pairwise(numbers)]
    assert min(steps) > 0, "they are concluded by their order"
    assert len(set(steps)) == 50 - 1
    assert min(steps) > 1 << 16, "none is found by trying what is near"
    other = Publisher(course.wire, "T", course.received.append, window=100, ack_timeout=60.0)
    other.publish([fires[0]])
    assert abs(int(course.wire.replies[-1].split(b".")[-2]) - int(keys[0])) > 1 << 16
    forged = b".".join((*course.wire.replies[-1].split(b".")[:-2], keys[0], b"%d" % (int(numbers[-1]) + 1)))
    for at_once in (False, True):
        body = STORED % 7
        if at_once:
            course.wire._runs[0](b"MSG %b 1 %d\r\n%b\r\n" % (forged, len(body), body), 0)
        else:
            course.wire._sinks[0](forged, b"", b"", body)
    assert (course.received, course.acknowledged, course.publisher.in_flight) == ([], [], 50)


async def test_what_a_leader_could_not_propose_is_unknown_at_once() -> None:
    course = Course()
    [fire] = course.publish(1)
    course.wire.answer(1, b'{"error":{"code":503,"description":"raft: not leader"},"stream":"S","seq":0}')
    unknown = Unknown("the leader could not propose it: raft: not leader")
    assert course.received == [PublishConcluded(fire, unknown)]
