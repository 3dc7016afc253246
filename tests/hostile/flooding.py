"""A client that sends requests without end, as a process of its own.

`python flooding.py HOST PORT RATE KIND SUBJECT BODY` begins it; `RATE` is requests a second.
With the kind `one` all of them name one inbox, with `many` each another one.
It ends when it is killed, and prints a line when it has begun.
"""

import socket
import sys
import threading
import time

HELLO = b'CONNECT {"verbose": false, "headers": true}\r\nPING\r\n'
PAUSE_SECONDS = 0.002


def answer_pings(connection: socket.socket) -> None:
    """Read all that comes, and show the server that this client is there."""
    while received := connection.recv(1 << 20):
        if b"PING" in received:
            connection.sendall(b"PONG\r\n")


def main(host: str, port: str, rate: str, kind: str, subject: str, body: str) -> None:
    """Send."""
    connection = socket.create_connection((host, int(port)))
    connection.sendall(HELLO + b"SUB _INBOX.flood.> 1\r\n")
    threading.Thread(target=answer_pings, args=(connection,), daemon=True).start()
    print("begun", flush=True)
    begun, sent, pause = time.monotonic(), 0, threading.Event()
    while True:
        due = int((time.monotonic() - begun) * int(rate))
        inboxes = ("flood" if kind == "one" else f"flood-{number}" for number in range(sent, due))
        text = "".join(f"PUB {subject} _INBOX.{inbox}.1 {len(body)}\r\n{body}\r\n" for inbox in inboxes)
        connection.sendall(text.encode())
        sent = due
        pause.wait(PAUSE_SECONDS)


if __name__ == "__main__":
    main(*sys.argv[1:])
