"""Acknowledgements that are parsed together have the same outcomes as parsed one by one, as JSON."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_scheduler.engine.inputs import Outcome, Stored, Unknown
from nats_scheduler.jetstream.publish import outcome_of
from nats_scheduler.jetstream.wire import ACKNOWLEDGED, PURGED, AnswerFrames, FrameParser, WireClient

INBOX = "_INBOX.x"

AS_SERVERS_WRITE_THEM = (
    b'{"stream":"ORDERS","seq":7}',
    b'{"stream":"ORDERS", "seq":7}',
    b'{"stream":"ORDERS","domain":"hub","seq":7}',
    b'{"stream":"ORDERS","domain":"hub", "seq":18446744073709551615}',
    b'{"stream":"ORDERS","seq":7,"duplicate": true}',
)

ODD = (
    b"",
    b"{}",
    b'{"stream":"ORDERS","seq":0}',
    b'{"stream":"ORDERS","seq":07}',
    b'{"stream":"ORDERS","seq":7',
    b'{"stream":"ORDERS","seq":7,"duplicate":false}',
    b'{"stream":"ORDERS","seq":7,"error":{"code":400,"err_code":10071,"description":"no"}}',
    b'{"stream":"ORDERS","seq":7}\n',
    b'{"stream":"ORDERS","seq":7}\r\n',
    b'{"stream":"ORDERS","seq":7}\r\nMSG _INBOX.x.1.8 3 27\r\n{"stream":"ORDERS","seq":8}',
    b'{"stream":"OTHER","seq":7}',
    b'{"seq":7}',
    b'{"stream":"ORDERSX","seq":7}',
    b'{"error":{"code":409,"err_code":10158,"description":"in process"},"stream":"ORDERS","seq":0}',
    b'{"stream":"\t","seq":7}',
    b'{"stream":"a\\"","seq":7}',
    b'{"seq":7,"stream":"ORDERS"}',
    b'{"stream":"ORDERS","seq":7.0}',
    b'{"stream":"ORDERS","seq":-7}',
)


class Reader:
    """Reads acknowledgements from the wire, together or one by one, and notes the fire of each."""

    def __init__(self, stream: str, *, at_once: bool) -> None:
        self.read: list[tuple[bytes, Outcome | None]] = []
        self.taken_at_once = 0
        streams = {b"%d" % key: stream.encode("utf-8", "replace") for key in range(100)}
        self._frames = AnswerFrames(INBOX, streams, ACKNOWLEDGED)
        client = WireClient()
        client.sinks[3] = lambda subject, _reply, block, body: self.read.append(
            (subject.removeprefix(b"_INBOX.x."), outcome_of(stream, block, body))
        )
        if at_once:
            client.runs[3] = self._run
        self.parser = FrameParser(client)

    def _run(self, buffer: bytes, position: int) -> int:
        groups, position = self._frames.read(buffer, position)
        for key, tokens, sequences in groups:
            self.taken_at_once += len(tokens)
            self.read += [(key + b"." + token, Stored(at)) for token, at in zip(tokens, sequences, strict=True)]
        return position


def wire_of(*bodies: bytes) -> bytes:
    """Return the frames of acknowledgements, with a pong and a refusal without a body between them."""
    shape = b"MSG _INBOX.x.%d.%d 3 %d\r\n%b\r\n"
    frames = [shape % (number // 7, number, len(body), body) for number, body in enumerate(bodies)]
    refusal = b"NATS/1.0 503\r\n\r\n"
    frames.insert(len(frames) // 2, b"HMSG _INBOX.x.9.99 3 %d %d\r\n%b\r\n" % (len(refusal), len(refusal), refusal))
    return b"".join(frames)


async def assert_read_alike(wire: bytes, pieces: int = 1 << 20, stream: str = "ORDERS") -> Reader:
    """Read the same bytes both ways; return the reader that reads them together."""
    at_once, one_by_one = Reader(stream, at_once=True), Reader(stream, at_once=False)
    for reader in (at_once, one_by_one):
        for start in range(0, len(wire), pieces):
            await reader.parser.parse(wire[start : start + pieces])
    assert at_once.read == one_by_one.read
    return at_once


@pytest.mark.parametrize("pieces", [1, 2, 5, 64, 1_024, 1_100, 1 << 20])
async def test_it_says_what_it_says_in_json(pieces: int) -> None:
    await assert_read_alike(wire_of(*AS_SERVERS_WRITE_THEM * 5, *ODD, *AS_SERVERS_WRITE_THEM * 5), pieces)


async def test_what_servers_write_is_understood_at_once() -> None:
    reader = await assert_read_alike(wire_of(*AS_SERVERS_WRITE_THEM * 4))
    outcomes = [outcome for token, outcome in reader.read if token != b"9.99"]
    assert (
        outcomes
        == [
            Stored(7),
            Stored(7),
            Stored(7),
            None,
            Stored(7, duplicate=True),
        ]
        * 4
    )
    assert reader.taken_at_once == 4 * (len(AS_SERVERS_WRITE_THEM) - 2), "neither the huge one nor the duplicate"


@pytest.mark.parametrize("stream", ["\u00dcbung", "a+b", "a(b", "100%"])
async def test_a_name_of_any_kind_is_known_at_once(stream: str) -> None:
    body = b'{"stream":"%b","seq":7}' % stream.encode()
    reader = await assert_read_alike(wire_of(*[body] * 40), stream=stream)
    assert reader.taken_at_once == 40


async def test_what_looks_like_an_end_inside_a_body_is_none() -> None:
    inner = b'{"stream":"ORDERS","seq":7}\r\nMSG _INBOX.x.1.8 3 27\r\n{"stream":"ORDERS","seq":8}'
    reader = await assert_read_alike(wire_of(*[inner] * 20))
    assert (len(reader.read), reader.taken_at_once) == (21, 0)


@given(
    st.text(max_size=12),
    st.none() | st.text(max_size=5),
    st.integers(-3, 1 << 65),
    st.none() | st.booleans(),
    st.sampled_from([(",", ":"), (", ", ": "), (", ", ":")]),
)
async def test_whatever_stands_in_it(
    stream: str, domain: str | None, sequence: int, duplicate: bool | None, separators: tuple[str, str]
) -> None:
    said = {"stream": stream, "domain": domain, "seq": sequence, "duplicate": duplicate}
    said = {key: value for key, value in said.items() if value is not None}
    body = json.dumps(said, separators=separators, ensure_ascii=False).encode("utf-8", "replace")
    await assert_read_alike(wire_of(*[body] * 20), stream=stream)


@pytest.mark.parametrize(
    "said",
    [
        b'{"error":{"code":409,"err_code":10158,"description":"duplicate message id is in process"},"stream":"S"}',
        b'{"stream":"S", "seq":0,"duplicate": true}',
    ],
    ids=["2.11", "2.10"],
)
def test_an_identity_in_process_is_an_unknown_outcome_and_no_refusal(said: bytes) -> None:
    outcome = outcome_of("S", b"", said)
    assert isinstance(outcome, Unknown)
    assert outcome.in_process


@pytest.mark.parametrize("said", [b'"seq":0', b'"duplicate":true', b'"seq":"0","duplicate":true', b'"seq":0.0'])
def test_what_only_resembles_it_is_no_answer_of_a_server(said: bytes) -> None:
    assert outcome_of("S", b"", b'{"stream":"S",%b}' % said) is None


DONE = b'{"type":"io.nats.jetstream.api.v1.stream_purge_response","success":true,"purged":%d}'
ODD_PURGES = (
    DONE[:-2],
    DONE % 1 + b" ",
    b'{"type":"io.nats.jetstream.api.v1.stream_purge_response","purged":0}',
    b'{"type":"io.nats.jetstream.api.v1.stream_purge_response","error":{"code":500,"err_code":10110,'
    b'"description":"stream purge not permitted"},"purged":0}',
    b"",
    b"[]",
)


def read_purges(bodies: list[bytes], keys: dict[bytes, bytes]) -> list[bytes]:
    """Return the numbers of those of these answers that are read at once, up to the first that is not."""
    groups, _position = AnswerFrames(INBOX, keys, PURGED).read(wire_of(*bodies), 0)
    return [number for _key, numbers, _counts in groups for number in numbers]


def test_answers_to_purges_are_read_at_once_up_to_the_first_that_says_anything_else() -> None:
    keys = {b"0": b"", b"1": b""}
    usual = [DONE % count for count in (0, 1, 70)]
    assert read_purges([*usual, *usual], keys) == [b"0", b"1", b"2"]  # a pong and a refusal lie between
    for odd in ODD_PURGES:
        assert read_purges([usual[0], odd, *usual, *usual, *usual], keys) == [b"0"]
    assert read_purges([*usual, *usual], {}) == []
