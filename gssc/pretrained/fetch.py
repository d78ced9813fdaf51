"""Files from the web: by https alone, in a time that follows from their size, and onto the disk."""

import base64
import hashlib
import http.client
import os
import socket
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from gssc.checks import check_choice, fail

SCHEMES = ("https", "file")
# All files together may take so many seconds, and one more for each so many bytes that have come; and never more than:
GRACE, LEAST_RATE, LONGEST = 30.0, 128 << 10, 1800.0
CONNECT = 10.0  # seconds to reach a host
PIECE = 1 << 16


def public(url: str) -> str:
    """A URL as it may be shown: without name, password and query, which may be secrets."""
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


class Fetcher:
    """Fetches files, whose time is counted together from its making."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.began, self.received = time.monotonic(), 0
        self.sockets: list[socket.socket] = []
        self.opener = urllib.request.OpenerDirector()  # with no handler of http
        for handler in (
            _Https(self, context), _Redirects(), urllib.request.ProxyHandler(), urllib.request.FileHandler(),
            urllib.request.HTTPDefaultErrorHandler(), urllib.request.HTTPErrorProcessor(),
            urllib.request.UnknownHandler(),
        ):  # fmt: skip
            self.opener.add_handler(handler)

    def seconds_left(self) -> float:
        return min(GRACE + self.received / LEAST_RATE, LONGEST) - (time.monotonic() - self.began)

    def fetch(self, base: str, name: str, size: int, out: Path) -> tuple[int, str]:
        """Write a file below a URL onto the disk, one byte more than ``size`` at most; its size and sha256."""
        parts = urllib.parse.urlsplit(base)
        check_choice("scheme of the URL", parts.scheme, SCHEMES)
        user, _, host = parts.netloc.rpartition("@")
        path = f"{parts.path}/{urllib.parse.quote(name)}"
        request = urllib.request.Request(urllib.parse.urlunsplit((parts.scheme, host, path, parts.query, "")))
        if user:  # for this host alone
            text = base64.b64encode(urllib.parse.unquote(user).encode()).decode()
            request.add_unredirected_header("Authorization", f"Basic {text}")
        digest, count, reason = hashlib.sha256(), 0, ""
        try:
            with self._watched(), self.opener.open(request, timeout=CONNECT) as answer, out.open("wb") as file:
                while count <= size and (piece := answer.read(min(PIECE, size + 1 - count))):
                    file.write(piece)
                    digest.update(piece)
                    count, self.received = count + len(piece), self.received + len(piece)
                file.flush()
                os.fsync(file.fileno())
        except urllib.error.URLError as error:
            reason = str(error.reason)
            if isinstance(error, urllib.error.HTTPError):
                error.close()
        except (http.client.HTTPException, OSError) as error:  # whose words may have the query in them
            reason = getattr(error, "strerror", None) or type(error).__name__
        shown = public(f"{base}/{name}")
        if self.seconds_left() <= 0:
            fail("URL", f"{GRACE:g} s and at least {LEAST_RATE:,} bytes in each further one", f"less from {shown}")
        if reason:
            fail("URL", "the folder of a published model", f"{shown} ({reason})")
        return count, digest.hexdigest()

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Connections are cut when time is over, whatever they wait for."""
        done = threading.Event()

        def watch() -> None:
            while not done.wait(max(min(self.seconds_left(), 1.0), 0.01)):
                if self.seconds_left() <= 0:
                    for one in self.sockets:
                        one.shutdown(socket.SHUT_RDWR) if one.fileno() >= 0 else None
                    return

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
            while self.sockets:
                self.sockets.pop().close()


class _Connection(http.client.HTTPSConnection):
    """One whose socket the fetcher knows from its beginning: TLS may already take for ever."""

    def __init__(self, fetcher: Fetcher, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        create = self._create_connection  # type: ignore[has-type]

        def known(*arguments: Any, **options: Any) -> socket.socket:
            made: socket.socket = create(*arguments, **options)
            fetcher.sockets.append(made.dup())
            return made

        self._create_connection = known


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, fetcher: Fetcher, context: ssl.SSLContext | None) -> None:
        self.fetcher, self.chosen = fetcher, context or ssl.create_default_context()
        super().__init__(context=self.chosen)

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(_Connection, self.fetcher), request, context=self.chosen)


class _Redirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req: urllib.request.Request, fp: Any, *answer: Any) -> urllib.request.Request | None:
        scheme = urllib.parse.urlsplit(answer[-1]).scheme
        if scheme != "https":
            fp.close()
            fail("URL", "one that stays with https", f"{public(req.full_url)}, which leads to {scheme}")
        fp.read = lambda *_: b""  # nothing of what comes with a redirection is read
        return super().redirect_request(req, fp, *answer)
