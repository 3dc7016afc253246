"""A forger: it may publish anywhere but on a target at its time, and stores messages that look like fires.

Its rule: what it stores keeps no schedule from firing and stands for no fire, so the judge's history has of it only
which identities it took.
Limit: it does not cancel, which it could, nor does it write a fire that could be genuine (`message.fires` says why).
"""

from collections.abc import Callable
from random import Random

from nats_scheduler.engine.inputs import Stored
from nats_scheduler.message.dialect import DIALECTS
from nats_scheduler.message.headers import with_headers
from nats_scheduler.message.identity import fire_identity
from nats_scheduler.message.reading import read_message
from nats_scheduler.message.stored import StoredMessage
from tests.judge.history import SECOND, FireKey, IdentityTaken
from tests.simulation.publishers import SUBJECTS
from tests.simulation.server import ELSEWHERE as OTHER_STREAM
from tests.simulation.server import FORGED, Server

FORGES_EVERY = SECOND
"""Mean time (ns) between two forgeries."""

LONG_WINDOW = 100 * SECOND
"""It blocks identities if the duplicate window (ns) is not shorter: no fire is excused at the end of the window."""

YEAR_9000 = 221_845_392_000 * SECOND

ELSEWHERE = "x.forged"


class Forger:
    """A client that forges fires in a world."""

    def __init__(self, server: Server, seed: int, trace: Callable[[str], None]) -> None:
        self._server = server
        self._random = Random(f"forgeries {seed}")
        self._trace = trace
        self._refused = Random(f"refused forgeries {seed}")
        stream = server.stream
        self._blocks = int(stream.config["num_replicas"]) > 1 and stream.rules.duplicate_window >= LONG_WINDOW
        self.is_over = False

    def forge_now_and_again(self) -> None:
        """Forge a fire of some schedule after a while, and again, until it is over."""
        self._server.timeline.after(int(self._random.expovariate(1 / FORGES_EVERY)), self._forge_again)

    def _forge_again(self) -> None:
        if self.is_over:
            return
        schedules = list(self._server.stream.messages("s.*"))
        if schedules:
            self._forge(self._random.choice(schedules))
        self.forge_now_and_again()

    def _forge(self, schedule: StoredMessage) -> None:
        rules, now = self._server.stream.rules, self._server.timeline.now
        reading = read_message(schedule.block, schedule.subject, schedule.stored_at, rules, DIALECTS)
        if reading is None or reading.definition is None:
            return
        pattern, terms = reading.definition.pattern, reading.definition.terms
        next_fire = pattern.next_fire(now, schedule.stored_at)
        if next_fire is not None and self._blocks and self._refused.random() < 0.5:
            self._block(schedule, next_fire)
        if next_fire is None or self._random.random() < 0.5:
            subject = self._random.choice([terms.target, ELSEWHERE])
            # Onto the subject of a schedule it would be an ordinary message, which ends it.
            self._store(ELSEWHERE if subject in SUBJECTS else subject, schedule, YEAR_9000, claims=True)
        else:
            self._store(ELSEWHERE, schedule, next_fire, claims=self._random.random() < 0.5)

    def _block(self, schedule: StoredMessage, fire_time: int) -> None:
        """Publish something under an identity of a fire that the server refuses: it keeps the identity in process."""
        taken = self._refused.choice([0, 0, schedule.sequence])
        identity = fire_identity(schedule.subject, schedule.sequence, fire_time, taken)
        headers = [(b"Nats-Expected-Last-Subject-Sequence", b"9999999"), (b"Nats-Msg-Id", identity.encode())]
        outcome = self._server.stream.publish(ELSEWHERE, with_headers(b"", headers), b"forged")
        self._trace(f"forger: blocks {identity} {outcome}")

    def _store(self, subject: str, schedule: StoredMessage, fire_time: int, *, claims: bool) -> None:
        """Store something under the identity of a fire, which `claims` to be that fire or makes no such claim."""
        headers = {FORGED: "yes", "Nats-Msg-Id": fire_identity(schedule.subject, schedule.sequence, fire_time)}
        if claims:
            prefix = "X-" if subject.startswith(OTHER_STREAM) else ""
            headers |= {f"{prefix}Nats-Scheduler": schedule.subject}
            headers |= {f"{prefix}Nats-Schedule-Next": "9999-01-01T00:00:00Z"}
        block = with_headers(b"", [(name.encode(), value.encode()) for name, value in headers.items()])
        outcome = self._server.stream_of(subject).publish(subject, block, b"forged")
        if isinstance(outcome, Stored) and not outcome.duplicate:
            fire, now = FireKey(schedule.sequence, fire_time), self._server.timeline.now
            self._server.history.taken.append(IdentityTaken(fire, outcome.sequence, now))
        self._trace(f"forger: on {subject} {headers['Nats-Msg-Id']} claims={claims} {outcome}")
