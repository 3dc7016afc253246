"""Files of schedules: what they declare, and all that is wrong with them at once, each with its line."""

from __future__ import annotations

from nats_scheduler.control.declared import Declared, Readable
from nats_scheduler.files.file_reading import StreamFile, read_files
from nats_scheduler.message.dialect import PORTABLE
from nats_scheduler.message.policies import PolicyText
from nats_scheduler.message.schedule_form import ScheduleForm

WRONG = """\
stream: ORDERS
owner: 5
schedules:
  - subject: orders.a
    cron: 0 0 9 * * *
    ttl: 1.5
    targt: orders.due
    policies: {misssed: skip}
  - subject: 5
    at: x
    every: y
    rollup: yes
    body:
  - subject: orders.c
    lines: ["A: b"]
    target: x
    body: a
    body_base64: "!"
  - subject: orders.d
    cron: "@daily"
    headers:
      - {name: Nats-Schedule-Target, value: x}
      - {name: Q}
    order: [Q]
  - target: x
  - orders.e
"""

PROBLEMS = [
    "f.yaml:2: owner of 5: expected a text of 1 to 256 characters",
    "f.yaml:6: orders.a: ttl of 1.5: expected a text such as '5m', or whole seconds",
    "f.yaml:7: orders.a: targt is an unknown key: expected one of subject, at,",
    "f.yaml:8: orders.a: policy misssed of 'skip' is no policy: X-Missed may be meant",
    "f.yaml:9: 5: subject of 5: expected text of one line; a number, or a word such as true, needs quotes to be text",
    "f.yaml:11: 5: at and every: expected one of at, every, cron, lines, block_base64",
    "f.yaml:12: 5: rollup of 'yes': expected true or false",
    'f.yaml:13: 5: body is empty: expected a value ("" for an empty text), or no key',
    "f.yaml:16: orders.c: target is beside lines, which has all headers: expected one of them",
    "f.yaml:18: orders.c: body and body_base64: expected one of them",
    "f.yaml:18: orders.c: body_base64 of '!': expected base64",
    "f.yaml:22: orders.d: header Nats-Schedule-Target: expected the key target instead",
    "f.yaml:23: orders.d: header Q: expected either value or value_base64",
    "f.yaml:24: orders.d: order of ['Q']: expected the names of all headers, each as often as it occurs: ",
    "f.yaml:25: no pattern: expected one of at, every, cron, lines, block_base64",
    "f.yaml:25: subject is missing",
    "f.yaml:26: a schedule of 'orders.e': expected a map with subject and a pattern",
]


def read(*texts: str) -> tuple[list[StreamFile], list[str]]:
    files, problems = read_files([(f"{name}.yaml", text.encode()) for name, text in zip("fg", texts, strict=False)])
    return files, list(map(str, problems))


def declared(schedule: str, head: str = "stream: ORDERS") -> Declared:
    files, problems = read(f"{head}\nschedules:\n  - {{subject: s, {schedule}}}")
    assert problems == []
    return files[0].declared[0]


def test_all_problems_of_a_file_are_found_at_once_each_with_its_line() -> None:
    files, problems = read(WRONG)
    assert files == []
    assert [(found, found.startswith(wanted)) for found, wanted in zip(problems, PROBLEMS, strict=True)] == [
        (found, True) for found in problems
    ]


def test_keys_mean_headers() -> None:
    limited = PolicyText("X-Limit", "3"), PolicyText("X-Missed", "skip"), PolicyText("X-Report", "true")
    contents: dict[str, Readable | bytes] = {
        "cron: 0 0 9 * * *, target: t": Readable(ScheduleForm("0 0 9 * * *", target="t")),
        "at: 2030-01-01T00:00:00Z": Readable(ScheduleForm("@at 2030-01-01T00:00:00Z")),
        "every: 5m, ttl: 60, rollup: true": Readable(ScheduleForm("@every 5m", ttl="60", rollup="sub")),
        "every: 5m, rollup: false, spelling: portable": Readable(ScheduleForm("@every 5m"), PORTABLE),
        "every: 5m, policies: {report: true, limit: 3, missed: skip}": Readable(
            ScheduleForm("@every 5m", policies=limited)
        ),
        "every: 5m, policies: {done_within: 1h}": Readable(
            ScheduleForm("@every 5m", policies=(PolicyText("X-Done-Within", "1h"),))
        ),
        "every: 5m, policies: {X-Limit: 3, Done-Within: 1h, x_missed: skip}": Readable(
            ScheduleForm(
                "@every 5m", policies=(PolicyText("X-Done-Within", "1h"), limited[0], PolicyText("X-Missed", "skip"))
            )
        ),
        "every: 5m, headers: [{name: B, value: x}, {name: A, value_base64: /w==}, {name: B, value: y}]": Readable(
            ScheduleForm("@every 5m", headers=(("B", "x"), ("A", "\udcff"), ("B", "y")))
        ),
        'lines: ["A:b", {base64: /w==}]': b"NATS/1.0\r\nA:b\r\n\xff\r\n\r\n",
        "block_base64: /w==": b"\xff",
    }
    assert {schedule: declared(schedule) for schedule in contents} == {
        schedule: Declared("s", content) for schedule, content in contents.items()
    }


def test_a_subject_is_declared_once_in_all_files() -> None:
    one = "stream: ORDERS\nschedules:\n  - {subject: s, cron: '@daily'}\n"
    files, problems = read(f"{one}---\n{one}", one)
    assert len(files) == 3
    assert problems == [
        "f.yaml:7: s: is declared twice in stream ORDERS: first at f.yaml:3",
        "g.yaml:3: s: is declared twice in stream ORDERS: first at f.yaml:3",
    ]
    assert read(one, one.replace("ORDERS", "OTHERS"))[1] == []


def test_what_is_no_file_of_schedules_is_reported() -> None:
    for content, problem in {
        b"stream: S\nowner: \xff": "f:2: is not UTF-8",
        b"": "f: is empty: expected stream and schedules",
        b"- a": "f:1: a document: expected a map with stream and schedules",
        b"x: 1\na: b: c": "f:2: is no YAML: mapping values are not allowed",
        rb'{"stream": "S", "schedules": [{"subject": "s", "cron": "@daily", "body": "\ud800"}]}': (
            "f: s: body of '\\ud800': expected text without half"
        ),
        b'{"stream": ' + b"[" * 100 + b"]" * 100 + b', "schedules": []}': "f:1: is nested more than 32 deep",
        b"stream: S": "f:1: schedules of None: expected a list of schedules",
        b'[{"stream": "S",\n "schedules": [{"subject": "s",\n "cron": 5}]}]': "f:3: s: cron of 5: expected text of",
    }.items():
        files, [found] = read_files([("f", content)])
        assert files == []
        assert str(found).startswith(problem)


def test_what_is_no_policy_is_reported_with_what_may_be_meant() -> None:
    head = "stream: S\nschedules:\n  - subject: s\n    cron: '@daily'\n    policies:\n      "
    for given, fault in {
        "Nats-Schedule-Limit: 2": "policy Nats-Schedule-Limit of 2 is no policy: X-Limit may be meant",
        "zebra: 2": "policy zebra of 2 is no policy: expected one of X-Anchor, X-Clock-Change, X-Consumer,",
        "{limit: 2, X-Limit: 3}": "policy X-Limit of 3 is given twice: limit is the same policy",
    }.items():
        files, (problem,) = read(head + given)
        assert (files, problem.startswith(f"f.yaml:6: s: {fault}")) == ([], True), problem
