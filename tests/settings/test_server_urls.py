"""Addresses: parsed as the nats CLI parses them, printed without their secrets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_scheduler.settings.connection import masked_url, read_server, split_servers


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost", "nats://localhost:4222"),
        ("localhost:4333", "nats://localhost:4333"),
        ("nats://n1", "nats://n1:4222"),
        ("nats://n1:", "nats://n1:4222"),
        ("tls://n1", "tls://n1:4222"),
        ("nats://[::1]", "nats://[::1]:4222"),
        ("nats://[::1]:5000", "nats://[::1]:5000"),
        ("bob:pw@n1", "nats://bob:pw@n1:4222"),
    ],
)
def test_an_address_is_filled_in(text: str, expected: str) -> None:
    assert read_server(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nats://",
        "nats://:4222",
        "n1:0",
        "n1:65536",
        "n1:port",
        "http://n1",
        "a b",
        "nats://[::1",
        "ws://n1",
        "wss://n1:443",
        "bob:p/w@n1",
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    assert read_server(text) is None


def test_a_list_is_split_at_commas() -> None:
    assert split_servers(" a , nats://b:1 ,,") == ("a", "nats://b:1")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nats://n1:4222", "nats://n1:4222"),
        ("nats://bob:pw@n1", "nats://bob:***@n1"),
        ("nats://tok@n1", "nats://***@n1"),
        ("bob:pw@n1", "bob:***@n1"),
        ("nats://a:b@n1,nats://c:d@n2", "nats://a:***@n1,nats://c:***@n2"),
        ("nats://bob:p@w@n1", "nats://bob:***@n1"),
        ("nats://bob:p/w@n1", "nats://***"),
        ("nats://bob:p w@n1", "nats://bob:***@n1"),
        ("nats://bob:p,w@n1", "nats://bob:***@n1"),
        ("bob:p,w@n1,nats://n2", "bob:***@n1,nats://n2"),
        ("bob:p://w@n1", "***"),
        ("could not reach nats://bob:pw@n1: refused", "could not reach nats://bob:***@n1: refused"),
    ],
)
def test_what_stands_before_the_at_sign_is_masked(text: str, expected: str) -> None:
    assert masked_url(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nats://n1:4222?token=s3cret", "nats://n1:4222?***"),
        ("nats://n1:4222/s3cret", "nats://n1:4222/***"),
        ("nats://n1:4222/a?token=s3cret#s3cret", "nats://n1:4222/***"),
        ("nats://n1#s3cret,tls://bob:s3cret@n2?s3cret", "nats://n1#***,tls://bob:***@n2?***"),
        ("n1:4222?token=s3cret", "n1:4222?***"),
        ("ws://n1?token=s3cret", "ws://n1?***"),
        ("nats://n1?token=s3 cret", "nats://n1?***"),
        ("nats://n1?token=s3,cret", "nats://n1?***"),
        ("nats://n1?token=s3@cret", "nats://***"),
        ("n1?s3cret", "n1?***"),
        ("n1:4222/s3cret", "n1:4222/***"),
        ("nats:/n1?s3cret", "nats:/n1?***"),
        ("nats://n1:4222/", "nats://n1:4222/"),
        ("/etc/nats/sidecar.creds", "/etc/nats/sidecar.creds"),
        ("conf/a#b.json", "conf/a#b.json"),
    ],
)
def test_what_follows_the_host_is_masked(text: str, expected: str) -> None:
    assert masked_url(text) == expected


@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=4).filter(lambda text: "://" not in text),
    st.sampled_from(["nats://bob:{}@n1:4222", "bob:{}@n1", "nats://n1:4222?token={}", "nats://n1/{}", "n1#{}"]),
)
def test_no_secret_survives_masking(text: str, address: str) -> None:
    assert "!" not in masked_url(address.format(f"!{text}!"))
