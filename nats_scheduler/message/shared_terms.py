"""One object for equal terms: the schedules of a fleet have few different ones, or differ in the target alone.

The rule: terms that are made here from a target and a source are those that `read_message` reads from a block with
them, and none are made if it would reject one of the two.
The subject of the schedule itself is not known here: that it is neither target nor source is left to the caller.

Cost: 0.1 µs for a target that is known, 1 µs for another one. At most `MAX_KINDS` times `MAX_TERMS` are kept.
"""

from collections.abc import Hashable
from typing import Any

from nats_scheduler.message.definition import Terms
from nats_scheduler.message.headers import decoded
from nats_scheduler.message.policies import NO_POLICIES
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.message.subjects import covering, covering_usual, is_literal_subject

MAX_KINDS = 8
"""How many kinds of terms are kept, which differ in more than target and source. A further one discards them."""

MAX_TERMS = 4_096
"""How many terms of one kind are kept. A further one discards them."""


class TermsOfKind:
    """Terms without policies that differ in target and source only."""

    def __init__(self, like: Terms, rules: StreamRules) -> None:
        """Make terms like these for a stream with these rules."""
        self._like = like
        self._restrictions = rules.restrictions
        self._restricts = rules.restrictions.targets is not None
        self._covers = covering(rules.subjects)
        self._covers_usual = covering_usual(rules.subjects)
        self._kept: dict[bytes, Terms] = {}

    def __len__(self) -> int:
        """Return how many are kept."""
        return len(self._kept)

    def aimed_at(self, target: bytes) -> Terms | None:
        """Return the terms with this target and without a source; None if the target may be invalid."""
        kept = self._kept.get(target)
        if kept is not None:
            return kept
        aim = target.decode("utf-8", "surrogateescape")
        if self._covers_usual(aim) is None and not self._is_possible(aim):
            return None
        dialect, _target, _source, ttl, rollup, policies = self._like
        if self._restricts and self._restrictions.target_fault(dialect.target, aim) is not None:
            return None
        if len(self._kept) >= MAX_TERMS:
            self._kept.clear()
        # Half the time of a call of `Terms`; one is made for each schedule with a target of its own.
        terms = self._kept[target] = tuple.__new__(Terms, (dialect, aim, None, ttl, rollup, policies))
        return terms

    def sampling(self, target: bytes, source: bytes) -> Terms | None:
        """Return the terms with this target and source (b"" for none); None if one of them may be invalid."""
        key = b"%b\n%b" % (target, source)  # no valid subject contains a line end
        kept = self._kept.get(key)
        if kept is not None or not source:
            return kept or self.aimed_at(target)
        aimed, sampled = self.aimed_at(target), decoded(source)
        if aimed is None or aimed.target == sampled or not self._is_possible(sampled):
            return None
        if self._restrictions.source_fault(aimed.dialect.source, sampled) is not None:
            return None
        terms = self._kept[key] = aimed._replace(source=sampled)
        return terms

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
        key = dialect.name, ttl, rollup
        if key not in self._kinds:
            _make_room(self._kinds, MAX_KINDS)
            self._kinds[key] = TermsOfKind(terms, self._rules)
        return self._kinds[key]

    def shared(self, terms: Terms) -> Terms:
        """Return the one object for terms that were read."""
        if terms.policies is not NO_POLICIES:
            _make_room(self._with_policies, MAX_TERMS)
            return self._with_policies.setdefault(terms, terms)
        target, source = (text.encode("utf-8", "surrogateescape") for text in (terms.target, terms.source or ""))
        return self.kind_of(terms).sampling(target, source) or terms


def _make_room(kept: dict[Any, Any], most: int) -> None:
    if len(kept) >= most:
        kept.clear()
