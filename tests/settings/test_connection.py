"""Connection settings: what they accept and what they fill in; they never show a secret."""

from __future__ import annotations

import pytest
from pydantic import SecretStr, ValidationError

from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.settings.connection import ConnectionSettings

HIDDEN = "hunter2"


def test_nothing_is_needed_to_reach_a_server_on_this_machine() -> None:
    settings = ConnectionSettings()
    assert settings.servers == ("nats://127.0.0.1:4222",)
    assert settings.api_prefix == "$JS.API"
    assert (settings.connect_timeout_seconds, settings.request_timeout_seconds) == (2.0, 5.0)


def test_no_secret_is_shown_by_repr_or_dump() -> None:
    settings = ConnectionSettings(
        servers=(f"nats://bob:{HIDDEN}@n1:4222", f"nats://{HIDDEN}@n2"),
        user="bob",
        password=SecretStr(HIDDEN),
        token=SecretStr(HIDDEN),
    )
    for shown in (repr(settings), str(settings), f"{settings!r}", settings.model_dump_json()):
        assert HIDDEN not in shown
    assert settings.masked_servers == ("nats://bob:***@n1:4222", "nats://***@n2:4222")


def test_the_client_gets_addresses_and_secrets_as_they_are() -> None:
    settings = ConnectionSettings(servers=(f"nats://bob:{HIDDEN}@n1",), user="u", password=SecretStr(HIDDEN))
    assert settings.servers == (f"nats://bob:{HIDDEN}@n1:4222",)
    assert settings.password is not None
    assert settings.password.get_secret_value() == HIDDEN


@pytest.mark.parametrize(
    "values",
    [
        {"servers": [f"nats://bob:{HIDDEN}@"]},
        {"servers": [f"gopher://bob:{HIDDEN}@host"]},
        {"password": HIDDEN},
        {"user_seed": HIDDEN},
        {"user": "bob", "password": HIDDEN, "creds": "/a.creds"},
        {"token": {"value": HIDDEN}},
        {"password": [HIDDEN]},
        {"servers": {"url": HIDDEN}},
    ],
)
def test_an_error_does_not_hold_the_secret_that_it_is_about(values: dict[str, object]) -> None:
    with pytest.raises(ValidationError) as caught:
        ConnectionSettings.model_validate(values)
    assert HIDDEN not in str(caught.value)


@pytest.mark.parametrize(
    "values",
    [
        {"servers": []},
        {"servers": ["ws://a", "nats://b"]},
        {"tls_cert": "/c.pem"},
        {"tls_key": "/k.pem"},
        {"js_domain": "a.b"},
        {"inbox_prefix": "_INBOX."},
        {"inbox_prefix": "in box"},
        {"inbox_prefix": "a.>"},
        {"connect_timeout": "1"},
        {"connect_timeout": "1h"},
        {"connect_timeout": True},
        {"request_timeout": "0s"},
        {"nonsense": 1},
    ],
)
def test_what_cannot_work_is_refused(values: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ConnectionSettings.model_validate(values)


def test_a_duration_is_text_in_json_and_nanoseconds_in_python() -> None:
    assert ConnectionSettings(connect_timeout=3 * SECOND).connect_timeout == 3 * SECOND
    assert ConnectionSettings.model_validate({"connect_timeout": "1m30s"}).connect_timeout == 90 * SECOND
    assert '"connect_timeout":"1m30s"' in ConnectionSettings(connect_timeout=90 * SECOND).model_dump_json()
    with pytest.raises(ValidationError):
        ConnectionSettings.model_validate_json('{"connect_timeout": 3000000000}')


def test_a_domain_wins_over_an_imported_prefix() -> None:
    assert ConnectionSettings(js_api_prefix="JS.acme").api_prefix == "JS.acme"
    assert ConnectionSettings(js_api_prefix="JS.acme", js_domain="hub").api_prefix == "$JS.hub.API"
