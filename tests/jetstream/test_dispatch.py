"""A message that is read goes to its own subscription alone, however many there are."""

from nats_scheduler.jetstream.wire import MIN_RUN_BYTES, FrameParser, WireClient

SUBSCRIPTIONS = 1_000


async def test_a_frame_asks_one_reader_and_a_chunk_calls_who_asked_for_it() -> None:
    client, asked, called, delivered = WireClient(), list[int](), list[int](), list[int]()

    def subscribe(sid: int) -> None:
        def run(_buffer: bytes, position: int) -> int:
            asked.append(sid)
            return position

        def sink(_subject: bytes, _reply: bytes, _block: bytes, _body: bytes) -> None:
            delivered.append(sid)
            client.after_chunk.append(lambda: called.append(sid))

        client.sinks[sid], client.runs[sid] = sink, run

    for sid in range(1, SUBSCRIPTIONS + 1):
        subscribe(sid)
    body = b"x" * MIN_RUN_BYTES
    parser = FrameParser(client)
    await parser.parse(b"MSG s 7 %d\r\n%b\r\nMSG s 900 %d\r\n%b\r\n" % (len(body), body, len(body), body))
    assert (asked, delivered, called) == ([7, 900], [7, 900], [7, 900])
    await parser.parse(b"+OK\r\n")
    assert called == [7, 900], "once, and not after what concerns nobody"


async def test_a_subscription_that_was_ended_takes_nothing_out_of_what_was_read() -> None:
    client, asked = WireClient(), list[int]()
    sid = client.add_sink("s", lambda *_: None)

    def run(_buffer: bytes, position: int) -> int:
        asked.append(position)
        return position

    client.runs[sid] = run
    client.remove_sink(sid)
    await FrameParser(client).parse(b"MSG s %d 2000\r\n%b\r\n" % (sid, b"x" * 2_000))
    assert not asked
