"""One to one: give each of some things one of its candidates, so that as many as possible get one.

Its rule: augmenting paths (Kuhn), in the order given, so that the same history has the same verdict.
Cost: the product of things and candidates at worst; histories that know their outcomes have one candidate each.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

Thing = TypeVar("Thing", bound=Hashable)
Candidate = TypeVar("Candidate", bound=Hashable)


def matched(candidates: Mapping[Thing, Sequence[Candidate]]) -> dict[Thing, Candidate]:
    """Match things to candidates, each used once; a thing without a candidate is left out."""
    taken: dict[Candidate, Thing] = {}

    def place(thing: Thing, tried: set[Candidate]) -> bool:
        for candidate in candidates[thing]:
            if candidate in tried:
                continue
            tried.add(candidate)
            if candidate not in taken or place(taken[candidate], tried):
                taken[candidate] = thing
                return True
        return False

    for thing in candidates:
        place(thing, set())
    return {thing: candidate for candidate, thing in taken.items()}
