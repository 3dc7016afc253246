"""How an engine continues from the rows of another one: what they say, and what else has to be known.

The rows of a table (`engine.holding.table`) say of each schedule what is true up to one sequence of the stream, at
least. All else that an engine would not read again after that sequence is a *document*, which is written in the same
transaction. An engine that begins with both is as one that lost contact at that sequence.

The rules:

- A document is made when nothing that was read is left to be taken (`may_write`), and the rows of all objects that
  changed are written. So each fire up to its sequence shows in its schedule, or its schedule is done.
- Rows may say more than the document: to read a message again changes nothing (`engine.receiving.intake`). But the
  stream must then have all messages up to `ends`, or what rows say of their fires may not be true.
- What is in progress for a schedule begins anew, and so does what calendars decide: they may have been edited.
- What no row can have is named in the document by its sequence, and read again from the stream.
- Messages that expire (TTLs on servers without them), a limit of schedules, and a subject transform of the stream are
  known of all messages and not of schedules: such a stream is read from its beginning, and so is one of which messages
  may be gone before they are read.

Cost: a document takes some microseconds, and more for each exception; to begin with one takes 30 µs for each schedule
that is done, or whose policies need to know of earlier fires, and nothing for all others.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from nats_scheduler.engine.events import Ending
from nats_scheduler.engine.firing import purging
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.holding.purges import Purges
from nats_scheduler.engine.holding.state import EngineState
from nats_scheduler.engine.inputs import Version
from nats_scheduler.engine.ownership.takeover import Takeover
from nats_scheduler.engine.receiving.named_calendars import Calendars
from nats_scheduler.engine.receiving.replaced import Replacements
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.invalid import InvalidTimeZone
from nats_scheduler.schedule.patterns import PatternKind
from nats_scheduler.schedule.zones import load_zone

MAX_NAMED = 10_000
"""Most messages, schedules and zones that a document names one by one; while there are more, none is written."""


class LastRead(NamedTuple):
    """The message with the highest sequence that was read."""

    subject: str
    sequence: int
    stored_at: int
    """Nanoseconds since the Unix epoch."""


class OldVersion(NamedTuple):
    """A version of a schedule that may still be stored below a newer one, and is to be purged."""

    subject: str
    through: int
    """Everything on the subject up to this sequence is to be purged."""
    sequence: int
    stored_at: int
    """The instant (ns) at which it was stored."""


class Owed(NamedTuple):
    """A version of a schedule that was replaced, and of which a fire is still to be stored."""

    sequence: int
    fire_time: int
    """Nanoseconds since the Unix epoch."""
    replaced_at: int
    """The instant (ns) at which what replaced it was stored."""


@dataclass(frozen=True, slots=True)
class RestartDocument:
    """All that is known up to one sequence, besides the schedules that are rows."""

    through: int
    """All messages up to this sequence have been read."""
    last: LastRead
    last_fired: int
    """The last send time (ns) of which a fire was read back."""
    zones: dict[str, str]
    """The digests of the data of the time zones that rows name."""
    roll_ups: list[tuple[str, int]] = field(default_factory=list)
    """Targets that may still be to be rolled up, with the last sequence to be purged."""
    stored_over: list[tuple[int, int]] = field(default_factory=list)
    """The last sequence that was stored over schedules, behind their sequences."""
    old_versions: list[OldVersion] = field(default_factory=list)
    owed: list[Owed] = field(default_factory=list)
    to_read: list[int] = field(default_factory=list)
    """The sequences of messages that are to be read again, in their order: what they mean is in no row."""

    @property
    def exceptions(self) -> int:
        """The number of messages, schedules and zones that are named one by one."""
        lists = self.zones, self.stored_over, self.old_versions, self.to_read, self.roll_ups, self.owed
        return sum(map(len, lists))

    @property
    def changed_zone(self) -> str:
        """A time zone whose data is not what it was; "" if there is none."""
        for name, digest in self.zones.items():
            zone = load_zone(name)
            if isinstance(zone, InvalidTimeZone) or zone.digest != digest:
                return name
        return ""


class Restart:
    """What one stream's engine leaves to the next one, and takes from the one before."""

    def __init__(
        self,
        state: EngineState,
        takeover: Takeover,
        replacements: Replacements,
        calendars: Calendars,
        *,
        removes_expired: bool,
    ) -> None:
        """Take the parts of an engine that know what a document says."""
        self._state = state
        self._takeover = takeover
        self._replacements = replacements
        self._calendars = calendars
        self._zones: dict[str, str] = {}
        """The digests of the zones that rows may name, by name: all that were ever named."""
        is_limited = state.rules.restrictions.max_schedules is not None
        reads_all = state.ownership.reads_all
        self.is_possible = reads_all and not (removes_expired or state.rules.moves_subjects or is_limited)
        """True if another engine may continue from the rows of this one."""

    @property
    def ends(self) -> int:
        """Rows may say what the stream had up to this sequence."""
        return max(self._state.progress.last_read, self._state.progress.acknowledged)

    @property
    def may_write(self) -> bool:
        """True if nothing is left to be taken of what was read, so that a document may be made."""
        progress = self._state.progress
        is_all_taken = not progress.matched and not self._state.unreported and not progress.is_behind
        return self.is_possible and progress.is_live and progress.last_message is not None and is_all_taken

    def document(self) -> RestartDocument | None:
        """Return what is known now besides rows, if the rows of all objects are written; None if it is too much.

        Only while `may_write`.
        """
        progress, schedules = self._state.progress, self._state.schedules
        last = progress.last_message
        assert last is not None, "something was read"
        for name in schedules.take_zones():
            if not isinstance(zone := load_zone(name), InvalidTimeZone):
                self._zones[name] = zone.digest
        found = RestartDocument(
            through=progress.last_read,
            last=LastRead(last.subject, last.sequence, last.stored_at),
            last_fired=self._state.ownership.last_fired,
            zones=dict(self._zones),
            roll_ups=[(target, one.through) for target, one in self._state.purges.roll_ups.items()],
            stored_over=list(self._state.stored_over.known().items()),
            old_versions=list(_old_versions(self._state.purges, self._takeover, self._replacements).values()),
            owed=[
                Owed(held.sequence, held.fire_time, held.replaced_at)
                for held in self._state.schedules.all_owed()
                if held.replaced_at is not None
            ],
            to_read=self._to_read(),
        )
        return None if found.exceptions > MAX_NAMED else found

    def _to_read(self) -> list[int]:
        inactive = self._state.inactive
        found = {one.sequence for one in inactive.rejected.values()}
        found |= {one.sequence for one in inactive.paused.values()}
        found |= {one.sequence for one in inactive.misnamed.values()}
        if self._state.deadlines is not None:
            found.update(self._state.deadlines.sequences)
        found.update(self._state.schedules.unwritten)
        found.update(held.sequence for held in self._state.schedules.all_owed())
        return sorted(found)

    def begin_with(self, document: RestartDocument, kinds: Mapping[PatternKind, int]) -> None:
        """Hold what the rows say, in an engine that has read nothing, before its next step.

        `kinds` are the numbers of the rows of each kind.
        """
        state, progress = self._state, self._state.progress
        assert not progress.last_read, "the engine has read nothing"
        self._zones = dict(document.zones)
        begun = self._state.schedules.begin(kinds)
        for roll_up in document.roll_ups:
            purging.roll_up(self._state, *roll_up)
        progress.last_read = document.through
        progress.last_message = StoredMessage(*document.last, block=b"", body=None)
        state.lifetimes.requests_missed(document.through)
        state.ownership.last_fired = document.last_fired
        state.stored_over.restore(dict(document.stored_over))
        state.owed_before = {sequence: (fire_time, at) for sequence, fire_time, at in document.owed}
        for subject, through, sequence, stored_at in document.old_versions:
            self._takeover.superseded(subject, through, Version(sequence, stored_at), None)
        for held, ending in begun:
            self._begin_again(held, ending)

    def _begin_again(self, held: Held, ending: str | None) -> None:
        if held.calendars:
            if ending is None:
                _forget_days(held)
            self._calendars.hold(held)
        if ending is not None:
            purging.purge(self._state, held, Ending(ending))


def _forget_days(held: Held) -> None:
    """Have a schedule wait for its first fire that may not be stored: its calendars may have other days than before."""
    before = held.previous_fire
    following = held.first_fire() if before is None else held.next_fire(before)
    if following is not None and following < held.fire_time:
        held.fire_time, held.dropped, held.unreported = following, 0, None
        held.is_known = held.is_known and not held.is_to_other_stream


def _old_versions(purges: Purges, takeover: Takeover, replacements: Replacements) -> dict[str, OldVersion]:
    """Return old versions that may still be stored, by subject."""
    found: dict[str, OldVersion] = {}

    def note(subject: str, through: int, known: Version) -> None:
        before = found.get(subject)
        if before is None or before.through < through:
            found[subject] = OldVersion(subject, through, known.sequence, known.stored_at)

    for subject, (through, known) in takeover.noted().items():
        note(subject, through, known)
    for subject, version, through in purges.may_be_stored():
        note(subject, through, version)
    for lost in replacements.uncompared():
        note(lost.schedule, lost.replaced_by - 1, Version(lost.sequence, lost.stored_at))
    return found
