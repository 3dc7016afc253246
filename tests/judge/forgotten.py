"""What a server that ends forgets: the identities of messages that were consumed, and acknowledgements it had not sent.

Its rule, as in `docs/concepts/promises.md`: where consumers remove generated messages, a fire that was stored just
before the only server ended may be stored again after that, because nothing shows it any more.
"""

from tests.judge.history import SECOND, FireSeen, History

ENDS_A_SERVER = frozenset({"server-kill", "server-restart"})

UNPROCESSED = SECOND // 10
"""The acknowledgement of a fire that was stored so long (ns) before the end may not have been processed."""

ENDS_WITHIN = SECOND // 2
"""So long (ns) after a strike begins, its server stores nothing more."""


def is_forgotten(history: History, first: FireSeen, second: FireSeen) -> bool:
    """Return whether the only server ended between the two fires, just after the first one was stored and consumed."""
    return history.terms.consumed and any(
        fault.kind in ENDS_A_SERVER
        and fault.begin - UNPROCESSED <= first.stored_at <= fault.begin + ENDS_WITHIN
        and second.stored_at > fault.begin
        for fault in history.faults
    )
