"""A real web server on a free port of 127.0.0.1, in the event loop of the test that starts it.

async with served({"/page": lambda request: web.Response(text="...")}) as server:
    ...  # ask f"{server.url}/page"; server.asked lists the requests, server.bodies their bodies
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Handler = Callable[[web.BaseRequest], Any]
"""A response, or an awaitable of one."""


@dataclass
class Server:
    port: int = 0
    asked: list[web.BaseRequest] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def paths(self) -> list[str]:
        return [request.path for request in self.asked]


@contextlib.asynccontextmanager
async def served(routes: Mapping[str, Handler] | Handler) -> AsyncIterator[Server]:
    """A server of `routes` by path, or of one handler for all; 404 for other paths."""
    server = Server()

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        server.asked.append(request)
        server.bodies.append(await request.read())
        server.in_flight += 1
        server.most_in_flight = max(server.most_in_flight, server.in_flight)
        try:
            handler = routes if callable(routes) else routes.get(request.path, lambda _: web.Response(status=404))
            response = handler(request)
            return await response if inspect.isawaitable(response) else response
        finally:
            server.in_flight -= 1

    runner = web.ServerRunner(web.Server(handle), shutdown_timeout=0.01)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.port = runner.addresses[0][1]
    try:
        yield server
    finally:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(runner.cleanup(), 5)
