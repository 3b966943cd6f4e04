"""Serves the live page of one campaign on this machine, to those who know its address.

It reads the campaign's event file, or its records once it has finished, and sends each event to the
page (server-sent events). It never talks to the driver. The address holds a random token.
"""

import asyncio
import json
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import uvicorn
from plotly.offline import get_plotlyjs
from starlette.applications import Starlette
from starlette.concurrency import iterate_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from harness.live.event_file import NAME, past, plain
from harness.records import lock

PAGE = Path(__file__).parent / "page"
HOST = "127.0.0.1"
LOOK_SECONDS = 0.5  # between two looks at the file
BEAT_LOOKS = 30  # a sign of life after so many looks at nothing new
POLICY = ("default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
          "connect-src 'self'; img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; "
          "frame-ancestors 'none'")
HEADERS = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff",
           "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}


def serve(folder: Path, settings: Mapping[str, Any], port: int,
          announce: Callable[[str], None]) -> None:
    """Serve the page of the campaign in `folder` until interrupted; `announce` gets its address.

    `settings` go to the page as JSON. Port 0 is any free one. Raises OSError if the port is taken.
    """
    token = secrets.token_urlsafe(16)
    with socket.create_server((HOST, port)) as listening:
        announce(f"http://{HOST}:{listening.getsockname()[1]}/{token}/")
        config = uvicorn.Config(application(folder, settings, token), log_level="error",
                                lifespan="off", timeout_graceful_shutdown=1)
        uvicorn.Server(config).run([listening])


def application(folder: Path, settings: Mapping[str, Any], token: str) -> Starlette:
    """Return the pages as an ASGI application; everything outside /token/ is not found."""
    plotly = get_plotlyjs()

    def file(name: str) -> Callable[[Request], Response]:
        return lambda request: FileResponse(PAGE / name, headers=HEADERS)

    def figures(request: Request) -> Response:
        return Response(plotly, media_type="text/javascript", headers=HEADERS)

    def known(request: Request) -> Response:
        return JSONResponse(dict(settings), headers=HEADERS)

    def events(request: Request) -> Response:
        last = request.headers.get("last-event-id", "")
        return StreamingResponse(follow(folder, int(last) if last.isdecimal() else 0),
                                 media_type="text/event-stream", headers=HEADERS)

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        given = scope.get("path", "").split("/")[1:2]
        right = given and secrets.compare_digest(given[0].encode(), token.encode())
        await (inner if right else Response("Not found", 404))(scope, receive, send)

    inner = Starlette(
        routes=[Route(f"/{token}/{name}", answer) for name, answer in (
            ("", file("index.html")), ("live.js", file("live.js")), ("live.css", file("live.css")),
            ("plotly.min.js", figures), ("settings.json", known), ("events", events))],
        # A page of another site that gives our address its name is refused.
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"])])
    application = Starlette()
    application.mount("/", guarded)
    return application


async def follow(folder: Path, offset: int) -> AsyncIterator[str]:
    """Yield the events after `offset` of a campaign's file, and those that come, until it ends.

    Without the file, a campaign that runs has not begun yet. One that does not run has ended: the
    page is told to start anew, and gets what the records hold.
    """
    path, page = folder / NAME, folder / "campaign.json"
    while not path.exists() and (lock.is_held(folder) or not page.exists()):
        yield ": waiting\n\n"
        await asyncio.sleep(LOOK_SECONDS)
    size = _size(path)
    if size is not None and (offset > size or not offset):
        yield _event(0, {"event": "reset"})
        offset = 0
    quiet = 0
    while size is not None:
        offset, lines = _lines(path, offset)
        for place, line in lines:
            yield f"id: {place}\ndata: {line}\n\n"
            if '"event": "end"' in line:
                return
        quiet = 0 if lines else quiet + 1
        if quiet == BEAT_LOOKS:
            quiet = 0
            yield ": nothing new\n\n"
        await asyncio.sleep(LOOK_SECONDS)
        size = _size(path)
    # Between two looks the campaign has finished, or it had finished before.
    yield _event(0, {"event": "reset"})
    async for known in iterate_in_threadpool(past(folder)):
        yield _event(0, known)
    yield _event(0, {"event": "end"})


def _event(place: int, line: Mapping[str, Any]) -> str:
    return f"id: {place}\ndata: {json.dumps(plain(line), allow_nan=False)}\n\n"


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _lines(path: Path, offset: int) -> tuple[int, list[tuple[int, str]]]:
    """Return the whole lines after `offset` with the place behind each; half a line waits."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            text = file.read()
    except OSError:
        return offset, []
    found = []
    for line in text.splitlines(keepends=True):
        if not line.endswith(b"\n"):
            break
        offset += len(line)
        found.append((offset, line.decode(errors="replace").rstrip("\n")))
    return offset, found
