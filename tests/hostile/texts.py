"""Texts that fill a header: what is cheap to send and may be dear to read."""

LONG = 60_000
"""Characters: a header block holds 65,535 bytes."""


def _list(items: list[str]) -> str:
    return ",".join(items)[:LONG].rsplit(",", 1)[0]


VALID_LISTS = {
    "the same item": _list(["1"] * LONG),
    "text behind stars": _list([f"*-{number:x}" for number in range(LONG)]),
    "leading zeros": _list(["0" * (number % 40) + "1" for number in range(LONG // 10)]),
    "one long number": "0" * LONG + "1",
    "all ranges": _list([f"{a}-{b}/{c}" for a in range(20) for b in range(20, 40) for c in range(1, 59)]),
    "all steps": _list([f"*/{number}" for number in range(1, LONG)]),
    "commas around": "," * LONG + "1",
}
"""Lists of seconds or minutes that the server accepts."""

PATTERNS = {
    **{f"cron: {name}": f"{text} * * * * *" for name, text in VALID_LISTS.items()},
    "cron: commas": "," * LONG + " * * * * *",
    "cron: many fields": "1 " * (LONG // 2),
    "cron: blanks": " " * LONG,
    "cron: hyphens": "1" + "-" * LONG + " * * * * *",
    "cron: slashes": "1" + "/" * LONG + " * * * * *",
    "cron: digits": "9" * LONG + " * * * * *",
    "cron: stars": "*" * LONG,
    "every: zeros": "@every 1s" + "0h" * (LONG // 2),
    "every: many terms": "@every 1s" + "".join(f"{number}ns" for number in range(1_000, 10_000)),
    "every: digits": "@every " + "9" * LONG,
    "every: digits of a fraction": "@every 1." + "1" * LONG + "s",
    "every: leading zeros": "@every " + "0" * LONG + "1s",
    "every: points": "@every " + "." * LONG,
    "every: a unit": "@every 1" + "h" * LONG,
    "every: signs": "@every " + "-" * LONG,
    "at: digits of a fraction": "@at 2030-01-01T00:00:00." + "1" * LONG + "Z",
    "at: digits": "@at " + "1" * LONG,
    "at: years": "@at " + "2030-" * (LONG // 5),
    "an alias that is none": "@" * LONG,
    "nothing but NUL": "\0" * LONG,
    "surrogates": "\udcff" * LONG,
    "letters that fold": "\u0130" * (LONG // 2) + " * * * * *",
}

TTLS = {
    "digits": "1" * LONG,
    "zeros": "0" * LONG,
    "terms": "1s" + "0h" * (LONG // 2),
    "never, longer": "never" * (LONG // 5),
    "a fraction": "1." + "1" * LONG + "s",
    "surrogates": "\udcff" * LONG,
}

ZONES = {
    "over-long": "A" * LONG,
    "over-long path": "Europe/" * (LONG // 7),
    "back and forth": "Europe/../" * (LONG // 10),
    "NUL": "Europe/\0Berlin",
    "surrogates": "Europe/\udcff",
    "a folder": "Europe",
    "the folder itself": ".",
    "a slash at the end": "Europe/Berlin/",
    "a file that is no zone": "tzdata.zi",
    "a module of the package": "__init__.py",
    "the root": "/etc/passwd",
    "another root": "\\etc\\passwd",
    "blank": " ",
    "newline": "\n",
    "below a zone": "Europe/Berlin/x",
}

SUBJECTS = {
    "long": "a" * LONG,
    "many tokens": "a." * (LONG // 2) + "a",
    "many empty tokens": "." * LONG,
    "many stars": "*." * (LONG // 2) + "*",
    "rest": ">",
    "rest within": "a.>.b",
    "blank": "a b",
    "tab": "a\tb",
    "NUL": "a.\0",
    "bytes that are not UTF-8": "a.\udcff",
    "a star inside": "a.*b",
    "a rest inside": "a.>b",
    "an API": "$JS.API.STREAM.DELETE.ORDERS",
    "an inbox": "_INBOX.x",
    "an empty token": "a..b",
    "line feed": "a\nb",
    "carriage return": "a\rb",
}
