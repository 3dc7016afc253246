"""Request a page from a listener, as Prometheus and health checks do, without blocking the event loop of the test."""

import asyncio
import http.client
from urllib.parse import urlsplit

ANSWER_SECONDS = 20.0
"""Longest wait for a page, on a busy machine."""


async def page(url: str, method: str = "GET") -> tuple[int, str]:
    """Return the status and the body of a page."""

    def ask() -> tuple[int, str]:
        parts = urlsplit(url)
        connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=ANSWER_SECONDS)
        try:
            connection.request(method, f"{parts.path}?{parts.query}")
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    return await asyncio.to_thread(ask)
