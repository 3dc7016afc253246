"""Loading: the first source has priority, nothing is ignored, every problem is reported, no secret is shown.

It tests `settings/problems.py`, `settings/sources.py`, `settings/stream_values.py` and `settings/duration_range.py`.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import click
import pytest

from nats_scheduler.cli.arguments import file_content
from nats_scheduler.message.restrictions import UNRESTRICTED, Restrictions
from nats_scheduler.message.subjects import request_beginnings
from nats_scheduler.schedule.instants import MILLISECOND, SECOND
from nats_scheduler.settings.fields import setting_fields
from nats_scheduler.settings.json_files import read_bounded, read_stream_file
from nats_scheduler.settings.load import load_settings, resolve_settings
from nats_scheduler.settings.problems import SettingsError
from nats_scheduler.settings.sidecar_settings import SidecarSettings

NOWHERE = {"XDG_CONFIG_HOME": "/nonexistent"}


def write(folder: Path, **content: object) -> Path:
    path = folder / "settings.json"
    path.write_text(json.dumps(content))
    return path


def problems(
    flags: dict[str, object] | None = None, environ: dict[str, str] | None = None, file: Path | None = None
) -> list[str]:
    """Return the problems, as the operator reads them."""
    with pytest.raises(SettingsError) as caught:
        load_settings(flags or {}, NOWHERE | (environ or {}), file)
    assert str(caught.value).splitlines() == [str(problem) for problem in caught.value.problems]
    return str(caught.value).splitlines()


def test_nothing_set_gives_the_defaults() -> None:
    resolved = resolve_settings({}, NOWHERE, None)
    assert resolved.settings == SidecarSettings()
    assert set(resolved.sources.values()) == {"default"}
    assert list(resolved.sources) == list(setting_fields())


def test_the_nearest_word_wins(tmp_path: Path) -> None:
    context = tmp_path / "far.json"
    context.write_text('{"url": "nats://context", "inbox_prefix": "_C", "jetstream_domain": "c"}')
    file = write(tmp_path, connection={"servers": ["nats://file"], "inbox_prefix": "_F"}, window=1, look_ahead="1s")
    environ = NOWHERE | {"NATS_URL": "nats://variable", "NATS_SCHEDULER_WINDOW": "2", "NATS_CONTEXT": str(context)}
    resolved = resolve_settings({"window": "3"}, environ, file)
    connection = resolved.settings.connection
    assert (resolved.settings.window, resolved.sources["window"]) == (3, "--window")
    assert connection.servers == ("nats://variable:4222",)
    assert resolved.sources["connection.servers"] == "$NATS_URL"
    assert (connection.inbox_prefix, resolved.sources["connection.inbox_prefix"]) == ("_F", f"file {file}")
    assert (connection.js_domain, resolved.sources["connection.js_domain"]) == ("c", "context far")
    environ |= {"NATS_SCHEDULER_CONNECTION_SERVERS": "nats://ours"}
    assert load_settings({}, environ, None).connection.servers == ("nats://ours:4222",), "ours wins over the CLI's"


def test_what_is_wrong_with_a_rule_is_named_by_its_place(tmp_path: Path) -> None:
    good: dict[str, object] = {"name": "a", "streams": ["T"], "subjects": ["t.a.>"]}
    wide = ["$JS.x", "_INBOX.x", ">", "*.x", "t.a*", "t..x", "nats_scheduler.control.v1.x"]
    bad = {**good, "name": "a b", "targets": ["t.x", *wide], "may": ["all"], "shortest_interval": "1ms", "rate": 1}
    file = write(tmp_path, control_rules=[good, bad, {"name": "c", "subjects": []}])
    reported = problems(file=file)
    keys = ["name", *(f"targets[{number}]" for number in range(1, 8)), "may[0]", "shortest_interval", "rate"]
    named = [line.partition(" of ")[0] for line in reported]
    missing = ["control_rules[2].streams", "control_rules[2].subjects"]
    assert named == [*(f"control_rules[1].{key}" for key in keys), *missing]
    assert f"control_rules[1].targets[3] of '>' (file {file}): expected a subject such as" in reported[3]
    assert reported[10].endswith("sources, policies, may, shortest_interval, changes_per_minute"), "an unknown key"
    assert reported[11].endswith(f"of nothing (file {file}): expected names of the streams with the schedules")
    twice = problems(file=write(tmp_path, control_rules=[good, good]))
    assert [one.rpartition(": expected ")[2] for one in twice] == ["each name once, not two rules 'a'"]
    rules = load_settings({}, NOWHERE, write(tmp_path, control_rules=[good])).control_rules
    assert (rules[0].targets, rules[0].policies, rules[0].changes_per_minute) == ((), None, 60)


def test_ways_to_log_in_win_as_a_whole_and_may_come_from_two_places(tmp_path: Path) -> None:
    creds = tmp_path / "x.creds"
    creds.write_text("")
    file = write(tmp_path, connection={"user": "bob", "password": "pw"})
    connection = load_settings({"creds": str(creds)}, NOWHERE, file).connection
    assert (connection.creds, connection.user, connection.password) == (creds, None, None)
    connection = load_settings({"user": "bob"}, NOWHERE | {"NATS_PASSWORD": "pw"}, None).connection
    assert (connection.user, connection.password is None) == ("bob", False)
    both = write(tmp_path, connection={"user": "a", "creds": str(creds)})
    one_way = "expected one way to log in, not user and creds at once"
    assert problems(file=both) == [f"connection.user of 'a' (file {both}): {one_way}"]
    for flags, environ in (({"user": "tok"}, {}), ({}, {"NATS_USER": "tok"})):
        connection = load_settings(flags, NOWHERE | environ, None).connection
        assert connection.user is None
        assert connection.token is not None
        assert connection.token.get_secret_value() == "tok", "a lone user is a token as in the CLI"


def test_text_of_a_variable_takes_the_form_of_its_setting() -> None:
    environ = {
        "NATS_SCHEDULER_PORTABLE_STREAMS": "A, B",
        "NATS_SCHEDULER_METRICS_PORT": "0",
        "NATS_SCHEDULER_LOOK_AHEAD": "250ms",
        "NATS_SCHEDULER_LOG_FORMAT": "json",
        "NATS_TIMEOUT": "1s",
        "NATS_USER": "",
    }
    settings = load_settings({}, NOWHERE | environ, None)
    for text in ("true", "TRUE", "1", "t", "yes", "on"):
        yes = {"NATS_SCHEDULER_CONNECTION_TLS_FIRST": text}
        assert load_settings({}, NOWHERE | yes, None).connection.tls_first is True, text
    assert settings.portable_streams == ("A", "B")
    assert (settings.metrics_port, settings.look_ahead, settings.log_format) == (0, 250 * MILLISECOND, "json")
    assert settings.connection.request_timeout == SECOND


def test_every_problem_is_reported_at_once(tmp_path: Path) -> None:
    file = write(tmp_path, window="5", log_level=None, drain_timeout=3)
    reported = problems({"ack_timeout": "5", "registry_bucket": "a b"}, {"NATS_SCHEDULER_METRICS_PORT": "70000"}, file)
    durations = "with its unit, such as '5s' or '250ms'"
    assert reported == [
        f"window of '5' (file {file}): expected a whole number from 1 to 8192",
        f"ack_timeout of '5' (--ack-timeout): expected a duration from 100ms to 1m0s, {durations}",
        f"drain_timeout of 3 (file {file}): expected a duration from 0s to 10m0s, {durations}",
        f"log_level of null (file {file}): expected debug or info or warning or error",
        "metrics_port of 70000 ($NATS_SCHEDULER_METRICS_PORT): expected a whole number from 0 to 65535",
        "registry_bucket of 'a b' (--registry-bucket): expected a string: key-value bucket for owners, heartbeats, "
        "checkpoints and flags: letters, digits, _ and -, 1 to 200 characters",
    ]


def test_a_variable_that_cannot_be_used_is_an_error() -> None:
    for name, value, reported in (
        ("NATS_SCHEDULER_WINDOE", "3", "NATS_SCHEDULER_WINDOE of '3' (environment): expected a variable that is a"),
        ("NATS_SCHEDULER_PASWORD", "hunter2", "NATS_SCHEDULER_PASWORD of **********"),
        ("NATS_SOCKS_PROXY", "socks5://bob:hunter2@p", "NATS_SOCKS_PROXY of 'socks5://bob:***@p'"),
        ("NATS_PASSWORD", "hunter2", "connection.password of ********** ($NATS_PASSWORD): expected user to be set too"),
        ("NATS_URL", "nats://bob:hunter2@n1:x", "connection.servers of ['nats://bob:***@n1:x'] ($NATS_URL)"),
        ("NATS_CREDS", "/no/such", "connection.creds of '/no/such' ($NATS_CREDS): expected a file that exists"),
        ("NATS_SCHEDULER_STREAMS_FOLDER", "/no", "streams_folder of '/no' ($NATS_SCHEDULER_STREAMS_FOLDER)"),
        ("NATS_SCHEDULER_REGISTRY_BUCKET", "a\nb", "registry_bucket of 'a\\nb'"),
        ("NATS_URL", "nats://\udcff", "connection.servers of 'nats://\\udcff' ($NATS_URL): expected text that can"),
    ):
        (found,) = problems(environ={name: value})
        assert found.startswith(reported)
        assert "hunter2" not in found


def test_variables_of_kubernetes_are_not_ours() -> None:
    address = "tcp://10.0.0.1:9464"
    ports = {f"NATS_SCHEDULER_{name}": address for name in ("PORT", "PORT_9464_TCP", "METRICS_PORT")}
    hosts = {f"NATS_SCHEDULER_{name}": "10.0.0.1" for name in ("SERVICE_HOST", "METRICS_SERVICE_HOST")}
    more = {f"NATS_SCHEDULER_{name}": "9464" for name in ("SERVICE_PORT", "SERVICE_PORT_METRICS")}
    environ = NOWHERE | ports | hosts | more | {"NATS_SCHEDULER_PORT_9464_TCP_ADDR": "10.0.0.1"}
    assert load_settings({}, environ, None) == SidecarSettings()
    (warning,) = resolve_settings({}, environ, None).warnings
    assert warning.startswith(f"NATS_SCHEDULER_METRICS_PORT of '{address}' is an address that Kubernetes")
    assert resolve_settings({"metrics_port": "9464"}, environ, None).warnings == (), "it is given elsewhere"
    image = {"NATS_SCHEDULER_METRICS_PORT_NUMBER": "9464"}
    overwritten = resolve_settings({}, environ | image, None)
    assert (overwritten.settings.metrics_port, overwritten.warnings) == (9464, ())
    assert overwritten.sources["metrics_port"] == "$NATS_SCHEDULER_METRICS_PORT_NUMBER"
    assert load_settings({}, NOWHERE | image | {"NATS_SCHEDULER_METRICS_PORT": "1234"}, None).metrics_port == 1234


def test_an_unknown_key_is_an_error_that_names_the_near_one(tmp_path: Path) -> None:
    reported = problems(
        file=write(tmp_path, windo=1, connection={"pasword": "hunter2"}, conection={"password": "hunter2"})
    )
    assert [line.partition(" (")[0] for line in reported] == [
        "windo of 1",
        "conection of {…}",
        "connection.pasword of **********",
    ]
    assert "such as window" in reported[0]
    assert "such as connection.password" in reported[2]


def test_a_file_that_is_no_json_object_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    for content, expected in (
        ("", "JSON (expecting value, line 1, column 1)"),
        ("[]", "a JSON object"),
        ('{"window": 1, "window": 2}', "each key once"),
        ('{"connection": {"user": "a", "user": "b"}}', "each key once"),
        ('{"window": 1} trailing', "JSON (extra data, line 1, column 15)"),
        ('{"connection": "nats://bob:hunter2@n1"}', "an object"),
    ):
        path.write_text(content)
        (reported,) = problems(file=path)
        assert reported.endswith(f"expected {expected}")
        assert "hunter2" not in reported
    assert "No such file" in problems(file=tmp_path / "none.json")[0]
    path.write_text(" " * 1024 * 1024 + "{}")
    assert "more than 1048576 bytes" in problems(file=path)[0]


def test_a_file_that_never_ends_is_refused(tmp_path: Path) -> None:
    endless = Path("/dev/zero")
    with pytest.raises(OSError, match="more than 100 bytes"):
        read_bounded(endless, 100)
    with pytest.raises(click.UsageError, match="/dev/zero has more than 67,108,864 bytes"):
        file_content(endless)
    with pytest.raises(SettingsError, match="/dev/zero: more than 1048576 bytes"):
        read_stream_file(endless)
    contexts = tmp_path / "nats" / "context"
    contexts.mkdir(parents=True)
    (contexts / "endless.json").symlink_to(endless)
    with pytest.raises(SettingsError, match="more than 1048576 bytes"):
        load_settings({"context": "endless"}, {"XDG_CONFIG_HOME": str(tmp_path)}, None)
    file = tmp_path / "file"
    file.write_bytes(b"x" * 100)
    assert read_bounded(file, 100) == b"x" * 100, "one of the limit is read"


# -- restrictions: lists of STREAM=VALUE -----------------------------------------------------------------------


def test_a_named_stream_has_its_own_restrictions(tmp_path: Path) -> None:
    elsewhere = "ORDERS=jobs.>,ORDERS=mail.out,*=log.*"
    settings = load_settings(
        {
            "allowed_targets": "ORDERS=due.>,ORDERS=paid,*=any.>",
            "max_schedules": "ORDERS=10,ORDERS=7",
            "allowed_targets_elsewhere": elsewhere,
        },
        NOWHERE | {"NATS_SCHEDULER_ALLOWED_SOURCES": "*=sensors.*"},
        None,
    )
    requests = request_beginnings("$JS.API", "_INBOX", "nats_scheduler")
    own = Restrictions(("due.>", "paid"), ("sensors.*",), 7, ("jobs.>", "mail.out"), requests)
    others = Restrictions(("any.>",), ("sensors.*",), None, ("log.*",), requests)
    assert (settings.restrictions_on("ORDERS"), settings.restrictions_on("OTHER")) == (own, others)
    settings = load_settings({}, NOWHERE, write(tmp_path, allowed_targets=["ORDERS=due.>"]))
    assert settings.restrictions_on("OTHER") == replace(UNRESTRICTED, elsewhere=(), requests=requests), (
        "but other streams are not reached"
    )


def test_a_named_stream_has_its_own_lateness_budget(tmp_path: Path) -> None:
    flag = load_settings({"lateness_budget": "250ms,ORDERS=0s,JOBS=20ms,JOBS=10ms"}, NOWHERE, None)
    file = load_settings({}, NOWHERE, write(tmp_path, lateness_budget=["ORDERS=1ms"]))
    found = [[one.budget_on(name) for name in ("ORDERS", "JOBS", "OTHER")] for one in (flag, file, SidecarSettings())]
    ms = MILLISECOND
    assert found == [[0, 10 * ms, 250 * ms], [ms, 5 * ms, 5 * ms], [5 * ms] * 3]
    assert [one.most_budget for one in (flag, file)] == [250 * ms, 5 * ms]
    for value in ("soon", "501ms", "ORDERS=-1ms", "ORDERS", "OR.DERS=5ms", "=5ms", "5"):
        with pytest.raises(SettingsError, match="0s to 500ms") as caught:
            load_settings({"lateness_budget": value}, NOWHERE, None)
        [problem] = caught.value.problems
        assert (problem.key, problem.value) == ("lateness_budget", f"[{value!r}]")


def test_fires_within_their_budget_are_not_reported_as_late() -> None:
    for late_after, is_refused in (("250ms", True), ("251ms", False)):
        given = {"lateness_budget": "ORDERS=250ms,0s", "late_after": late_after}
        if is_refused:
            with pytest.raises(SettingsError, match=r"late_after of '250ms' .* more than lateness_budget, 250ms"):
                load_settings(given, NOWHERE, None)
        else:
            assert load_settings(given, NOWHERE, None).late_after == 251 * MILLISECOND
