"""SQL and Python agree about which subjects a pattern with wildcards covers, whatever bytes both have."""

from random import Random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from nats_scheduler.engine.holding.table import in_memory, text_of
from nats_scheduler.engine.views.conditions import MAX_GLOB_CHARS, containing, covered
from nats_scheduler.message.subjects import is_covered
from tests.harness.seeds import draws

USUAL = ("a", "b", "A", "a*", "*", "*x", "**", ">", "a>", "", "?", "[", "]", "[a]", "[a-z]", "[^a]", "^", "-", "%", "_")
HOSTILE = ("ä", "\x80", "\ufffd", "\udcff", "\udcfe", "\udc80", "\0", "a\0b", "\n", "𝄞")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\udc80\udcff.*?[]>\0"), max_size=8)
SUBJECTS = st.lists(st.sampled_from([*USUAL, *HOSTILE]) | TEXTS, min_size=1, max_size=6).map(".".join)
LONG = "x" * (MAX_GLOB_CHARS + 1)
CONNECTION = in_memory()


def said_by_sqlite(subject: str, pattern: str) -> bool:
    condition = covered("subject", pattern)
    values = {**condition.values, "given": text_of(subject)}
    what = f"{condition.text}, {condition.subjects}"
    statement = f"SELECT {what} FROM (SELECT CAST(:given AS TEXT) AS subject)"  # noqa: S608
    is_true, may_be_found = CONNECTION.execute(statement, values).fetchone()
    assert may_be_found or not is_true, "the index finds it"
    return bool(is_true)


@settings(max_examples=draws(60), deadline=None)
@given(SUBJECTS, SUBJECTS.filter(bool), st.randoms(use_true_random=False))
@example("a.b.c", "a.*.>", Random(0))
@example("a.b.", "a.*.>", Random(0))
@example("a..c", "a.*.c", Random(0))
@example("a\0.b.c", "*.b.c", Random(0))
@example("a.\udcff.c", "*.\udcfe.c", Random(0))
@example(f"a.{LONG}.c", "a.*.c", Random(0))
@example("a.b.c", f"a.*.{LONG}.>", Random(0))
@example(".".join(["a"] * 5_000), "a.*.a.>", Random(0))
def test_sqlite_says_which_subjects_a_pattern_covers(subject: str, pattern: str, random: Random) -> None:
    assert said_by_sqlite(subject, pattern) == is_covered(subject, (pattern,))
    tokens = [
        subject if token.startswith(("*", ">")) or random.random() < 0.1 else token for token in pattern.split(".")
    ]
    alike = ".".join(tokens)
    assert said_by_sqlite(alike, pattern) == is_covered(alike, (pattern,))


@settings(max_examples=draws(30), deadline=None)
@given(SUBJECTS, TEXTS.filter(bool))
@example("a\0b.c", "b")
@example("a.\udcff", "\udcff")
@example("a.%_", "%_")
def test_sqlite_says_which_subjects_contain_a_text(subject: str, part: str) -> None:
    condition = containing("subject", part)
    statement = f"SELECT {condition.text} FROM (SELECT CAST(:given AS TEXT) AS subject)"  # noqa: S608
    for text in (subject, f"{subject}.{part}", part):
        (is_true,) = CONNECTION.execute(statement, {**condition.values, "given": text_of(text)}).fetchone()
        assert bool(is_true) == (bytes_of(part) in bytes_of(text))


def bytes_of(text: str) -> bytes:
    """Return the bytes of a text."""
    return text.encode("utf-8", "surrogateescape")
