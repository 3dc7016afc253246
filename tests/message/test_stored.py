"""Messages that were read together, and what is known of bodies that are not kept."""

from nats_scheduler.message.runs import MessageRun
from nats_scheduler.message.stored import StoredMessage, body_mark, is_other_body, size_named
from tests.harness.blocks import block_of


def test_a_run_is_the_sequence_of_its_messages() -> None:
    messages = [StoredMessage(f"s.{n}", n, 10 * n, b"block %d" % n, None) for n in range(1, 6)]
    run = MessageRun.of(messages)
    assert (len(run), list(run), run[1], run[-1]) == (5, messages, messages[1], messages[-1])
    assert (list(run[1:4]), list(run[1:4].times)) == (messages[1:4], [20, 30, 40])
    assert (list(run.sequences), list(run.times)) == ([1, 2, 3, 4, 5], [10, 20, 30, 40, 50])


def test_the_size_that_the_server_names_counts() -> None:
    for sizes, size in (("", 0), ("7", 7), ("7 9", 9), ("9" * 10, 9_999_999_999), ("9" * 11, 0), ("-7", 0), ("x", 0)):
        assert size_named(block_of(*(("Nats-Msg-Size", one) for one in sizes.split()))) == size, sizes


def mark(body: bytes | int) -> int:
    """Return the mark of a body; a number is the size of one that was not read."""
    if isinstance(body, bytes):
        return body_mark(StoredMessage("s", 1, 1, b"", body))
    found = body_mark(StoredMessage("s", 1, 1, block_of(("Nats-Msg-Size", str(body))), None))
    assert body_mark(StoredMessage("s", 1, 1, b"", None), body) == found
    return found


def test_bodies_are_compared_by_what_is_known_of_them() -> None:
    pairs: dict[bool | None, list[tuple[bytes | int, bytes | int]]] = {
        False: [(b"a", b"a"), (b"", b"")],
        True: [(b"a", b"b"), (b"a", b"ab"), (1, 2), (1, b"ab")],
        None: [(1, b"a"), (1, 1), (1, 4_097), (0, 1), (b"a", 0)],
    }
    for is_other, found in pairs.items():
        for one, other in found:
            assert is_other_body(mark(one), mark(other)) is is_other_body(mark(other), mark(one)) is is_other
            assert 0 <= mark(one) < 1 << 32
