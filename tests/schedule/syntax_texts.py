"""Random texts of the syntaxes `crontab` and `quartz`, most of them valid. Their meaning is what croniter says."""

from random import Random

from nats_scheduler.schedule.cron_syntax import Syntax

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


def drawn_text(random: Random) -> tuple[str, Syntax]:
    """Draw a pattern."""
    month_days, week_days = drawn_days(random)
    months = drawn_field(random, 1, 12, MONTHS)
    fields = [drawn_field(random, 0, 59), drawn_field(random, 0, 23), month_days, months, week_days]
    if random.random() < 0.5:
        return " ".join(fields), Syntax.CRONTAB
    fields.insert(0, drawn_field(random, 0, 59))
    if random.random() < 0.4:
        first = random.randint(2020, 2032)
        last = first + random.randint(1, 4)
        fields.append(random.choice(["*", f"{first}", f"{first}-{last}", f"{first},{last}", f"{first}/2"]))
    return " ".join(fields), Syntax.QUARTZ


def drawn_field(random: Random, low: int, high: int, names: tuple[str, ...] = ()) -> str:
    """Draw a list of values, ranges and steps, or a star; ranges may wrap around."""
    if random.random() < 0.3:
        return "*"
    return ",".join(_item(random, low, high, names) for _ in range(random.choice([1, 1, 1, 2, 3])))


def _item(random: Random, low: int, high: int, names: tuple[str, ...]) -> str:
    def written(value: int) -> str:
        is_named = names and random.random() < 0.5
        return random.choice([names[value - low], names[value - low].upper()]) if is_named else str(value)

    step = random.choice([1, 2, 3, 7, 15, 100])
    first, last = sorted(random.sample(range(low, high + 1), 2))
    begin, end = written(first), written(last)
    several = [f"{begin}-{end}", f"{end}-{begin}", f"{begin}-{end}/{step}", f"{begin}/{step}", f"*/{step}"]
    return random.choice([begin, end, *several])


def drawn_days(random: Random) -> tuple[str, str]:
    """Draw the day of the month and the day of the week; `W`, `#` and the last weekday stand beside a star only."""
    kind = random.choice(["plain", "plain", "last", "nearest", "weekdays"])
    number = random.randint(1, 31)
    if kind == "nearest":
        return random.choice([f"{number}W", f"W{number}", f"{number}w"]), random.choice("*?")
    if kind == "weekdays":
        return random.choice("*?"), ",".join(_numbered(random) for _ in range(random.choice([1, 1, 2, 3])))
    last = random.choice(["L", f"{min(number, 30)},l", f"{min(number, 30)}-L"])
    week_days = drawn_field(random, 0, 6, WEEKDAYS)
    return last if kind == "last" else drawn_field(random, 1, 31), "7" if week_days == "0" else week_days


def _numbered(random: Random) -> str:
    weekday, number = random.randint(0, 6), random.randint(0, 5)
    if number == 0:
        return f"{random.choice('Ll')}{weekday or random.choice([0, 7])}"
    if random.random() < 0.2:
        return f"{WEEKDAYS[weekday]}-{WEEKDAYS[(weekday + 2) % 7]}#{number}"
    return f"{random.choice([str(weekday), WEEKDAYS[weekday].upper()])}#{number}"
