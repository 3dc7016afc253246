"""Connection settings: what they accept and fill in, as the nats CLI does; they never show a secret."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from nats_scheduler.settings.connection_settings import ConnectionSettings
from nats_scheduler.settings.server_addresses import masked_url, read_server, split_servers

HIDDEN = "hunter2"


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


def test_what_cannot_work_is_refused_without_its_secret() -> None:
    refused: tuple[Any, ...] = (
        *({"servers": [f"nats://bob:{HIDDEN}@"]}, {"servers": [f"gopher://bob:{HIDDEN}@host"]}),
        *({"password": HIDDEN}, {"user_seed": HIDDEN}, {"user": "bob", "password": HIDDEN, "creds": "/a.creds"}),
        *({"token": {"value": HIDDEN}}, {"password": [HIDDEN]}, {"servers": {"url": HIDDEN}}),
        *({"servers": []}, {"servers": ["ws://a", "nats://b"]}, {"tls_cert": "/c.pem"}, {"tls_key": "/k.pem"}),
        *({"js_domain": "a.b"}, {"inbox_prefix": "_INBOX."}, {"inbox_prefix": "in box"}, {"inbox_prefix": "a.>"}),
        *({"connect_timeout": "1"}, {"connect_timeout": "1h"}, {"connect_timeout": True}, {"request_timeout": "0s"}),
        {"nonsense": 1},
    )
    for values in refused:
        with pytest.raises(ValidationError) as caught:
            ConnectionSettings.model_validate(values)
        assert HIDDEN not in str(caught.value), values


def test_a_domain_wins_over_an_imported_prefix() -> None:
    assert ConnectionSettings(js_api_prefix="JS.acme").api_prefix == "JS.acme"
    assert ConnectionSettings(js_api_prefix="JS.acme", js_domain="hub").api_prefix == "$JS.hub.API"


def test_no_imported_prefix_is_an_inbox_to_which_answers_are_sent() -> None:
    with pytest.raises(ValidationError, match="js_api_prefix"):
        ConnectionSettings(js_api_prefix="_fromA.API")


# -- addresses -------------------------------------------------------------------------------------------------


def test_an_address_is_filled_in_or_refused() -> None:
    filled = {
        "localhost": "nats://localhost:4222",
        "localhost:4333": "nats://localhost:4333",
        "nats://n1": "nats://n1:4222",
        "nats://n1:": "nats://n1:4222",
        "tls://n1": "tls://n1:4222",
        "nats://[::1]": "nats://[::1]:4222",
        "nats://[::1]:5000": "nats://[::1]:5000",
        "bob:pw@n1": "nats://bob:pw@n1:4222",
    }
    none = ["", "nats://", "nats://:4222", "n1:0", "n1:65536", "n1:port", "http://n1", "a b", "nats://[::1", "ws://n1"]
    refused = dict.fromkeys([*none, "wss://n1:443", "bob:p/w@n1"])
    assert {text: read_server(text) for text in filled | refused} == filled | refused
    assert split_servers(" a , nats://b:1 ,,") == ("a", "nats://b:1")


def test_what_stands_before_the_at_sign_and_after_the_host_is_masked() -> None:
    masked = {
        "nats://n1:4222": "nats://n1:4222",
        "nats://bob:pw@n1": "nats://bob:***@n1",
        "nats://tok@n1": "nats://***@n1",
        "bob:pw@n1": "bob:***@n1",
        "nats://a:b@n1,nats://c:d@n2": "nats://a:***@n1,nats://c:***@n2",
        "nats://bob:p@w@n1": "nats://bob:***@n1",
        "nats://bob:p/w@n1": "nats://***",
        "bob:p,w@n1,nats://n2": "bob:***@n1,nats://n2",
        "bob:p://w@n1": "***",
        "could not reach nats://bob:pw@n1: refused": "could not reach nats://bob:***@n1: refused",
        "nats://n1:4222?token=s3cret": "nats://n1:4222?***",
        "nats://n1:4222/s3cret": "nats://n1:4222/***",
        "nats://n1:4222/a?token=s3cret#s3cret": "nats://n1:4222/***",
        "nats://n1#s3cret,tls://bob:s3cret@n2?s3cret": "nats://n1#***,tls://bob:***@n2?***",
        "nats://n1?token=s3@cret": "nats://***",
        "n1:4222/s3cret": "n1:4222/***",
        "/etc/nats/sidecar.creds": "/etc/nats/sidecar.creds",
        "conf/a#b.json": "conf/a#b.json",
    }
    assert {text: masked_url(text) for text in masked} == masked
