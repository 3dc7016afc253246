"""The losses of servers: identities of messages that were consumed, and what they had acknowledged.

Its rule, as in `docs/concepts/promises.md`: where consumers remove generated messages, a fire that was stored just
before the only server ended may be stored again after that, because nothing shows it any more.
What was acknowledged is lost by the servers only if the files of every node show it: a removed message is still written
there, or the note of its removal. So what a sidecar removed by mistake is no loss of the servers.
Limit: the files have to be those in which the message was stored; where they begin behind it, nothing is excused.
"""

from tests.judge.history import SECOND, FireKey, FireSeen, History, Verb

ENDS_A_SERVER = frozenset({"server-kill", "server-restart"})

UNPROCESSED = SECOND // 10
"""The acknowledgement of a fire that was stored within this time (ns) before the end may not have been processed."""

ENDS_WITHIN = SECOND // 2
"""From this time (ns) after the beginning of a strike on, its server stores nothing more."""


def is_forgotten(history: History, first: FireSeen, second: FireSeen) -> bool:
    """Return whether the only server ended between the two fires, just after the first one was stored and consumed."""
    return history.terms.consumed and any(
        fault.kind in ENDS_A_SERVER
        and fault.begin - UNPROCESSED <= first.stored_at <= fault.begin + ENDS_WITHIN
        and second.stored_at > fault.begin
        for fault in history.faults
    )


class Losses:
    """The messages and removals that the servers of a history acknowledged and lost."""

    def __init__(self, history: History) -> None:
        self._stores = history.stores
        self.schedules: dict[int, str] = {}
        """The schedules that were lost, with what the stores show, by their sequence."""
        self.fires: dict[FireKey, str] = {}
        """The fires that were lost, likewise: a sidecar received the answer that they are stored."""
        for one in history.operations:
            if one.verb is not Verb.STORE or one.sequence is None or one.completed_at is None:
                continue
            if self._is_lost(one.sequence, one.completed_at, one.body):
                self.schedules[one.sequence] = f"{one.schedule}, acknowledged as {self._evidence(one.sequence)}"
        seen = {(fire.schedule_sequence, fire.fire_time) for fire in history.fires}
        for answer in history.answered:
            if answer.fire in seen:
                continue
            if self._is_lost(answer.sequence, answer.at, answer.fire):
                fire = f"the fire of {answer.fire.schedule_sequence} for {answer.fire.fire_time}"
                self.fires[answer.fire] = f"{fire}, acknowledged as {self._evidence(answer.sequence)}"

    def _is_lost(self, sequence: int, acknowledged_at: int, content: bytes | FireKey) -> bool:
        """Return whether the files of every node show that it lost what was acknowledged under a sequence.

        `content` is the body of what was acknowledged, or which fire it is.
        Another message there is a loss if it was stored later: the server gave the sequence away a second time.
        """
        for store in self._stores:
            record = store.records.get(sequence)
            if record is not None:
                may_hold = content in (record.body, record.identity) or record.stored_at <= acknowledged_at
            else:
                may_hold = sequence in store.erased or sequence < min(store.records, default=sequence + 1)
            if may_hold:
                return False
        return bool(self._stores)

    def _evidence(self, sequence: int) -> str:
        """Write what each store has under a sequence."""
        found = []
        for store in self._stores:
            record = store.records.get(sequence)
            other = f"ends at {store.last()}" if sequence > store.last() else "has nothing"
            found.append(f"{store.node} {other if record is None else f'has {record.subject}'}")
        return f"{sequence}: {', '.join(found)}"
