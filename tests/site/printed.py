"""A comparison of what a command printed with what its page shows.

The rules: times, ages, lateness, names of instances, the sequences of fires and the width of columns may differ, and
nothing else. The block shows all that was printed, but a line that is only `…` stands for any lines.
"""

import re

ANY = "…"
TIME = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)?"
AGE = r"-?(?:\d+(?:\.\d+)? ?(?:ns|µs|ms|s|m|h|d))+(?!\w)"
VARIABLE = re.compile(
    "|".join(
        (
            rf"(?P<time>{TIME})",
            r"(?P<day>\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\b(?=\s+\d{4}-))",
            r"(?P<sequence>(?<=sidecar  )\d+)",
            r"(?P<instance>\b[0-9a-f]{12}\b)",
            rf"(?P<age>(?<![\w@.:/-])(?<!every )(?<!last ){AGE})",
            r"(?P<blank>\s+)",
        )
    )
)
PATTERNS = {"time": TIME, "day": r"\w{3}", "sequence": r"\d+", "instance": r"[0-9a-f]{12}", "age": AGE, "blank": r"\s+"}


def pattern_of(line: str) -> re.Pattern[str]:
    """Return what a line of a page stands for."""
    parts, end = [], 0
    for match in VARIABLE.finditer(line):
        parts += [re.escape(line[end : match.start()]), PATTERNS[str(match.lastgroup)]]
        end = match.end()
    return re.compile("".join([*parts, re.escape(line[end:])]).rstrip())


def difference(shown: str, printed: str, *, in_any_order: bool = False) -> str | None:
    """Return the first line of a page that was not printed so, or what was printed and is not shown; None if none."""
    lines = [line.rstrip() for line in printed.splitlines()]
    wanted = [line.rstrip() for line in shown.splitlines()]
    if in_any_order:
        return next((line for line in wanted if not any(pattern_of(line).fullmatch(one) for one in lines)), None)
    return _in_order(wanted, lines)


def _in_order(wanted: list[str], lines: list[str]) -> str | None:
    position, may_skip = 0, False
    for line in wanted:
        if line == ANY:
            may_skip = True
            continue
        found = position
        while may_skip and found < len(lines) and not pattern_of(line).fullmatch(lines[found]):
            found += 1
        if found >= len(lines) or not pattern_of(line).fullmatch(lines[found]):
            return line or "(an empty line)"
        position, may_skip = found + 1, False
    return None if may_skip or position == len(lines) else f"(not shown) {lines[position]}"
