"""The answer to a publish: only one that names the stream and a sequence, or an error, is the server's."""

from nats_scheduler.message.publish_answers import IN_PROCESS, Published, Refusal, answer_of, publish_answer


def test_only_a_sequence_says_that_a_message_is_stored() -> None:
    assert publish_answer("S", b"", b'{"stream":"S", "seq":7}') == Published(7)
    assert publish_answer("S", b"", b'{"stream":"S", "seq":7,"duplicate": true}') == Published(7, is_duplicate=True)
    for odd in (
        b'"seq":0',
        b'"seq":"7"',
        b'"seq":-7,"duplicate":true',
        b'"seq":true',
        b'"seq":0,"duplicate":1',
        b'"a":1',
    ):
        assert publish_answer("S", b"", b'{"stream":"S",%b}' % odd) is None, odd


def test_a_duplicate_of_sequence_0_is_in_process() -> None:
    """As 2.10 says of an identity that it knows, and not whether its message is stored."""
    assert publish_answer("S", b"", b'{"stream":"S", "seq":0,"duplicate": true}') == IN_PROCESS


def test_a_refusal_has_both_codes_of_the_server() -> None:
    def answer(error: bytes) -> Published | Refusal | None:
        return publish_answer("S", b"", b'{"error":%b,"stream":"S","seq":9}' % error)

    refused = b'{"code":400,"err_code":10071,"description":"wrong last sequence: 3"}'
    assert answer(refused) == Refusal(400, 10071, "wrong last sequence: 3")
    assert answer(b'{"code":503,"description":"not now"}') == Refusal(503, 0, "not now")
    assert answer(b'{"code":503}') == Refusal(503, 0, "")
    for odd in (b"{}", b'"none"', b'{"code":400}', b'{"err_code":10071}', b'{"code":"400","err_code":10071}'):
        assert answer(odd) is None, odd


def test_the_answer_of_another_stream_is_not_the_servers() -> None:
    stored = b'{"stream":"S", "seq":7}'
    assert [answer_of(stream)(b"", stored) for stream in ("S", "T")] == [True, False]
    for block, body in ((b"NATS/1.0\r\nNats-Stream: S\r\n\r\n", stored), (b"", b"[]"), (b"", b"thanks"), (b"", b"")):
        assert not answer_of("S")(block, body), body
