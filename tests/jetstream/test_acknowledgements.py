"""An acknowledgement that is read without JSON says what it says in JSON."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_scheduler.engine.inputs import Stored, Unknown
from nats_scheduler.jetstream.publish import outcome_in_json, outcome_of

AS_SERVERS_WRITE_THEM = (
    b'{"stream":"ORDERS","seq":7}',
    b'{"stream":"ORDERS", "seq":7}',
    b'{"stream":"ORDERS","domain":"hub","seq":7}',
    b'{"stream":"ORDERS","domain":"hub", "seq":18446744073709551615}',
    b'{"stream":"ORDERS","seq":7,"duplicate": true}',
    b'{"stream":"\xc3\x9cbung","seq":123456789}',
)

ODD = (
    b"",
    b"{}",
    b'{"stream":"S","seq":0}',
    b'{"stream":"S","seq":07}',
    b'{"stream":"S","seq":7',
    b'{"stream":"S","seq":7,"duplicate":false}',
    b'{"stream":"S","seq":7,"error":{"code":400,"err_code":10071,"description":"no"}}',
    b'{"stream":"S","seq":7}\n',
    b'{"stream":"\t","seq":7}',
    b'{"stream":"a\\"","seq":7}',
    b'{"seq":7,"stream":"S"}',
    b'{"stream":"S","seq":7.0}',
    b'{"stream":"S","seq":-7}',
)


@pytest.mark.parametrize("body", AS_SERVERS_WRITE_THEM + ODD)
def test_it_says_what_it_says_in_json(body: bytes) -> None:
    assert outcome_of(b"", body) == outcome_in_json(body)


def test_what_servers_write_is_understood() -> None:
    told = [outcome_of(b"", body) for body in AS_SERVERS_WRITE_THEM]
    assert told == [
        Stored(7),
        Stored(7),
        Stored(7),
        Unknown(f"the acknowledgement cannot be read: {AS_SERVERS_WRITE_THEM[3]!r}"),
        Stored(7, duplicate=True),
        Stored(123456789),
    ]


@given(
    st.text(max_size=12),
    st.none() | st.text(max_size=5),
    st.integers(-3, 1 << 65),
    st.none() | st.booleans(),
    st.sampled_from([(",", ":"), (", ", ": "), (", ", ":")]),
)
def test_whatever_stands_in_it(
    stream: str, domain: str | None, sequence: int, duplicate: bool | None, separators: tuple[str, str]
) -> None:
    said = {"stream": stream, "domain": domain, "seq": sequence, "duplicate": duplicate}
    said = {key: value for key, value in said.items() if value is not None}
    body = json.dumps(said, separators=separators, ensure_ascii=False).encode("utf-8", "replace")
    assert outcome_of(b"", body) == outcome_in_json(body)
