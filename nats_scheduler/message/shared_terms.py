"""One object for equal terms: the schedules of a fleet have few different ones, or differ in the target alone.

Terms that are made here from a target and a source are those that `read_message` reads from a block with them, and none
are made if it would reject one of the two. The subject of the schedule itself is not known here: that it is neither
target nor source is left to the caller.
"""

from collections.abc import Hashable, Sequence
from typing import Any

from nats_scheduler.message.headers import decoded, encoded
from nats_scheduler.message.policies import NO_POLICIES
from nats_scheduler.message.schedule_form import Terms
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.message.subjects import covering, covering_usual, is_literal_subject

MAX_KINDS = 8
"""The largest number of kinds of terms, which differ in more than target and source. A further one discards them."""

MAX_TERMS = 4_096
"""The largest number of terms of one kind. A further one discards them."""

MAX_TERMS_BYTES = 512 * 1024
"""The most bytes of targets and sources of one kind. Further ones discard them, so that long ones cost no more."""

MAX_TERMS_WITH_POLICIES = 1_024
"""The largest number of terms with policies, some KB each. A further one discards them."""


class TermsOfKind:
    """Terms without policies that differ in target and source only."""

    def __init__(self, like: Terms, rules: StreamRules) -> None:
        """Make terms like these for a stream with these rules."""
        self.like = like
        """One of them."""
        self._restrictions = rules.restrictions
        self._covers = covering(rules.subjects)
        self._covers_usual = covering_usual(rules.subjects)
        self._kept: dict[bytes, Terms] = {}
        self._kept_bytes = 0

    def __len__(self) -> int:
        """Return how many are kept."""
        return len(self._kept)

    def aimed_at(self, target: bytes, source: bytes = b"") -> Terms | None:
        """Return the terms with this target and source (b"" for none); None if one of them may be invalid."""
        key = b"%b\n%b" % (target, source) if source else target  # no valid subject contains a line end
        kept = self._kept.get(key)
        if kept is not None:
            return kept
        aim = self._aim(target)
        if aim is None:
            return None
        dialect, _target, _source, *others = self.like
        sampled = decoded(source) or None
        if sampled is not None and (
            sampled == aim or not self._is_possible(sampled) or self._restrictions.source_fault(dialect.source, sampled)
        ):
            return None
        self._kept_bytes += len(key)
        if len(self._kept) >= MAX_TERMS or self._kept_bytes > MAX_TERMS_BYTES:
            self._kept.clear()
            self._kept_bytes = len(key)
        # Half the time of a call of `Terms`; one is made for each schedule with a target of its own.
        terms = self._kept[key] = tuple.__new__(Terms, (dialect, aim, sampled, *others))
        return terms

    def targets(self, texts: Sequence[bytes]) -> list[str] | None:
        """Return targets of terms without a source as texts; None if one of them may be invalid."""
        if self._restrictions.targets is not None:
            return None
        # None contains a line end, and one that is not UTF-8 is decoded alike between two line ends.
        targets = decoded(b"\n".join(texts)).split("\n")
        return targets if all(map(self._covers_usual, targets)) else None

    def _aim(self, target: bytes) -> str | None:
        """Return a target as text; None if it may be invalid."""
        aim = target.decode("utf-8", "surrogateescape")
        if self._covers_usual(aim) is None and not self._is_possible(aim):
            return None
        return None if self._restrictions.target_fault(self.like.dialect.target, aim) else aim

    def _is_possible(self, subject: str) -> bool:
        return is_literal_subject(subject) and self._covers(subject) is not None


class SharedTerms:
    """The terms of one stream's schedules."""

    def __init__(self, rules: StreamRules) -> None:
        """Share nothing yet."""
        self._rules = rules
        self._kinds: dict[Hashable, TermsOfKind] = {}
        self._with_policies: dict[Terms, Terms] = {}

    def __len__(self) -> int:
        """Return how many are kept."""
        return len(self._with_policies) + sum(map(len, self._kinds.values()))

    def kind_of(self, terms: Terms) -> TermsOfKind:
        """Return the kind of terms that have no policies."""
        dialect, _target, _source, ttl, rollup, _policies = terms
        key = dialect.name, ttl, rollup  # not the policies: there are none, and they take long to hash
        if key not in self._kinds:
            _make_room(self._kinds, MAX_KINDS)
            self._kinds[key] = TermsOfKind(terms, self._rules)
        return self._kinds[key]

    def shared(self, terms: Terms) -> Terms:
        """Return the one object for terms that were read."""
        if terms.policies is not NO_POLICIES:
            _make_room(self._with_policies, MAX_TERMS_WITH_POLICIES)
            return self._with_policies.setdefault(terms, terms)
        target, source = (encoded(text) for text in (terms.target, terms.source or ""))
        return self.kind_of(terms).aimed_at(target, source) or terms


def _make_room(kept: dict[Any, Any], most: int) -> None:
    if len(kept) >= most:
        kept.clear()
