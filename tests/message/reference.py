"""The server's header functions, translated as literally as Python allows: the oracle of the fuzz tests.

They are slow and plain on purpose: each function follows its Go original (client.go) step by step, so that
a reader can compare the two. Only the memory management of the originals is left out.
"""

EMPTY_LINE_SIZE = len(b"NATS/1.0\r\n\r\n")


def key_index(key: bytes, block: bytes) -> int:
    """`getHeaderKeyIndex`."""
    offset = 0
    while True:
        index = block[offset:].find(key)
        if index < 2:
            return -1
        index += offset
        if index >= len(block) - 1 or block[index - 1 : index] != b"\n" or block[index - 2 : index - 1] != b"\r":
            offset = index + len(key)
            continue
        if index + len(key) >= len(block):
            return -1
        if block[index + len(key)] != ord(":"):
            offset = index + len(key)
            continue
        return index


def slice_header(key: bytes, block: bytes) -> bytes | None:
    """`sliceHeader`."""
    index = key_index(key, block)
    if index == -1:
        return None
    index += len(key) + 1
    while index < len(block) and block[index] == ord(" "):
        index += 1
    start = index
    while index < len(block) and block[index : index + 2] != b"\r\n":
        index += 1
    return block[start:index]


def remove_if_present(block: bytes, key: bytes) -> bytes:
    """`removeHeaderIfPresent`."""
    while True:
        start = key_index(key, block)
        if start < 1 or block[start - 1] != ord("\n"):
            return block
        end = block[start:].find(b"\r\n")
        if end < 0:
            return block
        block = block[:start] + block[start + end + 2 :]
        if len(block) <= EMPTY_LINE_SIZE:
            return b""


def remove_if_prefix_present(block: bytes, prefix: bytes) -> bytes:
    """`removeHeaderIfPrefixPresent`."""
    index = 0
    while index < len(block):
        start = block[index:].find(prefix)
        if start < 0:
            return block
        index += start
        if index < 1 or block[index - 1] != ord("\n"):
            index += len(prefix)
            continue
        end = block[index + len(prefix) :].find(b"\r\n")
        if end < 0:
            return block
        block = block[:index] + block[index + end + len(prefix) + 2 :]
        if len(block) <= EMPTY_LINE_SIZE:
            return b""
    return block


def remove_status(block: bytes) -> bytes:
    """`removeHeaderStatusIfPresent`."""
    index = block.find(b"\r")
    if not block.startswith(b"NATS/1.0") or index <= 8:
        return block
    block = block[:8] + block[index:]
    return b"" if len(block) == EMPTY_LINE_SIZE else block


# -- what older versions do otherwise, and where traces are looked for ---------------------------------------------


def first_index(key: bytes, block: bytes) -> int:
    """The search of `sliceHeader` up to 2.11.4: only the first occurrence counts."""
    return _if_header(block.find(key), key, block)


def first_index_with_colon(key: bytes, block: bytes) -> int:
    """The search of `sliceHeader` in 2.11.5 to 2.11.8: only the first occurrence with a colon counts."""
    return _if_header(block.find(key + b":"), key, block)


def _if_header(index: int, key: bytes, block: bytes) -> int:
    is_header = index >= 2 and block[index - 2 : index] == b"\r\n" and block[index + len(key) :][:1] == b":"
    return index if is_header else -1


SEARCHES = (first_index, first_index_with_colon, key_index)
"""The ways in which the versions search for a header."""


def traced_keys(block: bytes) -> list[bytes]:
    """Return the names that `genHeaderMapIfTraceHeadersPresent` finds."""
    keys: list[bytes] = []
    index = len(b"NATS/1.0\r\n")
    while block.startswith(b"NATS/1.0\r\n") and index < len(block):
        colon = block.find(b":", index)
        end = block.find(b"\r\n", colon + 1)
        if colon < 0 or end < 0:
            break
        keys.append(block[index:colon])
        index = end + 2
    return keys
