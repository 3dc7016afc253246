"""The cron grammar is the server's, oddities included."""

from nats_scheduler.schedule.cron import parse_cron
from nats_scheduler.schedule.cron_fields import STAR, CronFields
from nats_scheduler.schedule.invalid import Invalid


def read(text: str) -> CronFields:
    fields = parse_cron(text)
    assert isinstance(fields, CronFields), fields
    return fields


def refused(text: str) -> str:
    answer = parse_cron(text)
    assert isinstance(answer, Invalid), answer
    assert answer.text == text
    return answer.reason


def values(mask: int) -> list[int]:
    return [value for value in range(63) if mask >> value & 1]


SECONDS = {
    "50/3": [50, 53, 56, 59],
    "10-20/5": [10, 15, 20],
    "?/20": [0, 20, 40],
    "*/9223372036854775807": [0],
    "3,3,3-4": [3, 4],
    # Numbers are what Go converts.
    **{word: [5] for word in ("+5", "0" * 5_000 + "5", "5/+60", "5/060")},
}


def test_lists_ranges_and_steps_are_read() -> None:
    assert {word: values(read(f"{word} * * * * *").seconds) for word in SECONDS} == SECONDS
    for word in ("-5", "1_0", "0x5", "\u0665", "\u00b2", "++5", "+", "9" * 5_000, "*/9223372036854775808"):
        assert refused(f"{word} * * * * *").startswith("second "), word
    assert read("1," * 30_000 + "2 * * * * *") == read("1,2 * * * * *")


def test_empty_items_of_a_list_are_ignored() -> None:
    for word in ("1,,2", ",1,2", "1,2,", ",,1,,2,,"):
        assert values(read(f"{word} * * * * *").seconds) == [1, 2], word


def test_text_after_a_star_is_ignored() -> None:
    for word in ("*-5", "*-garbage", "?-x", "*-1-2-3", "*-\udcff", "*-5/1"):
        assert read(f"0 0 0 {word} * *") == read("0 0 0 * * *"), word
        assert read(f"0 0 0 {word.split('/')[0]}/3 * *") == read("0 0 0 */3 * *"), word


def test_a_stepped_star_is_a_restriction() -> None:
    for word in ("*/2", "?/2", "*-x/2"):
        assert not read(f"0 0 0 {word} * 5").days_of_month & STAR, word
    for word in ("*", "?", "*/1", "*/+01", "*,13", "13,*", "*/2,*"):
        assert read(f"0 0 0 {word} * 5").days_of_month & STAR, word


def test_names_stand_for_numbers_in_any_case() -> None:
    assert values(read("* * * * JAN-mar,Dec *").months) == [1, 2, 3, 12]
    assert values(read("* * * ? * sun,1-FRI/2").days_of_week) == [0, 1, 3, 5]
    for text in ("* * * * january *", "* * * * * monday", "* * * * 1/feb *", "mon * * * * *"):
        assert refused(text), "names are three letters in their own field, and no steps"


def test_names_are_folded_as_go_folds_them() -> None:
    assert read("* * * ? * FR\u0130") == read("* * * ? * fri")
    assert "not a number" in refused("* * * ? * fr\u0131")
    assert "not a number" in refused("* * * ? * \u017fun")


REASONS = {
    "61 * * * * *": "second 61 is above 59",
    "* * * 0 * *": "day of month 0 is below 1",
    "* * * * * 7/2": "day of week 7 is above 6",
    "30-10 * * * * *": "second range 30-10 runs backwards (ranges do not wrap around)",
    "* * * * * sat-sun": "day of week range 6-0 runs backwards (ranges do not wrap around)",
    "1-2-3 * * * * *": "second '1-2-3' has two hyphens",
    "1/2/3 * * * * *": "second '1/2/3' has two slashes",
    "*/0 * * * * *": "second '*/0' needs a step of 1 or more after the slash",
    "1- * * * * *": "second '1-' is not a number 0–59, a range or *",
    "* * * * * 5#2": "day of week '5#2' is not a number 0–6, a name sun–sat, a range or *",
    "* * * L * *": "day of month 'L' is not a number 1–31, a range or *",
    "": "expected 6 fields (second minute hour day-of-month month day-of-week), got 0",
    "* * * * * * *": "expected 6 fields (second minute hour day-of-month month day-of-week), got 7",
}


def test_the_reason_names_the_field_and_what_was_expected() -> None:
    assert {text: refused(text) for text in REASONS} == REASONS
    assert refused("*/5 * * * *").endswith("got 5")


def test_fields_are_separated_by_what_go_calls_space() -> None:
    for space in ("\t", "\n", "\v", "\f", "\r", "  ", "\x85", "\xa0", "\u1680", "\u2003", "\u2028", "\u3000"):
        assert read(f"{space}5 * * * * *{space}".replace(" ", space)) == read("5 * * * * *"), space
    for character in ("\x1c", "\x1d", "\x1e", "\x1f", "\u200b", "\ufeff", "\udc85"):
        assert refused(f"5{character}* * * * *").endswith("got 5"), "only Python calls it space"


def test_a_pattern_that_can_never_match_is_refused_at_once() -> None:
    for text in (", * * * * *", "* , * * * *", "* * , * * *"):
        assert "nothing ever matches" in refused(text)
    for text in ("* * * * , *", "* * * , * ,", "* * * , * *", "0 0 0 30 2 *", "0 0 0 31 2,4,6,9,11 *"):
        assert "none of the given months" in refused(text)


def test_an_empty_day_field_leaves_the_other_one() -> None:
    assert read("* * * , * 1").days == read("* * * ? * 1").days
    assert read("* * * 15 * ,").days == read("* * * 15 * ?").days
