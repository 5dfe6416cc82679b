"""Serves the log files of one folder, read-only: names that look like log files, bytes in ranges, to whoever has the token.

Whoever has no token learns nothing, not even which paths exist. Requests are bounded in number, size and time, so that a client can
neither fill the memory nor keep others out for long.
"""

from __future__ import annotations

import hmac
import json
import logging
import os
import re
import socket
import ssl
import stat
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from runnel.errors import Unreachable, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LARGEST_RANGE = 8 << 20
"""Bytes that one answer has at most; a longer range is cut."""
LARGEST_NOTE = 64
"""Bytes of a small file (an index) that are sent with the listing."""
MOST_FILES = 10_000
CONNECTIONS = 64
"""Connections at the same time; further ones are closed at once."""
IDLE_SECONDS = 20.0
"""How long a connection may say nothing."""
LONGEST_SECONDS = 60.0
"""How long a connection may last, however slowly it talks; a client opens another one."""
SHORTEST_TOKEN = 16
_CHUNK = 1 << 18
_RANGE = re.compile(r"bytes=(\d{1,18})-(\d{1,18})?")
_PREFIX = "/logs/"
log = logging.getLogger("runnel")


@dataclass(frozen=True)
class Served:
    """What is served: the files of `folder` whose names match `files`; those that match `notes` are small and listed with their text."""

    folder: Path
    token: bytes
    files: re.Pattern[str]
    notes: re.Pattern[str]


class LogServer(ThreadingHTTPServer):
    """Answers until it is stopped; `port` 0 takes a free one."""

    daemon_threads = True
    block_on_close = False
    longest = LONGEST_SECONDS

    def __init__(self, served: Served, address: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        """Listen; beyond this machine only with TLS, because the token would be read on the way."""
        check_token(served.token)
        if tls is None and not is_loopback(address):
            raise UsageError(
                "RUNNEL-SERVE-TLS",
                f"without TLS the log is served on this machine only, not on {address}",
                hint="give --cert and --key, or --address 127.0.0.1",
            )
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._tls = tls
        self._free = threading.BoundedSemaphore(CONNECTIONS)
        try:
            super().__init__((address, port), partial(Handler, served))
        except OSError as error:
            raise Unreachable(
                "RUNNEL-SERVE-ADDRESS",
                f"{address}:{port} cannot be listened on: {error.strerror or error}",
                hint="choose another --port or --address",
            ) from error

    @property
    def url(self) -> str:
        """The address as a client names it."""
        host, port = self.server_address[0], self.server_address[1]
        shown = f"[{host!s}]" if ":" in str(host) else str(host)
        return f"{'http' if self._tls is None else 'https'}://{shown}:{port}"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection in a thread of its own, if there is room."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer one connection; its handshake is done here, so that it keeps nobody else waiting."""
        same = request.dup()
        end = threading.Timer(self.longest, partial(same.shutdown, socket.SHUT_RDWR))
        end.daemon = True
        end.start()
        try:
            request.settimeout(IDLE_SECONDS)
            if self._tls is not None:
                request = self._tls.wrap_socket(request, server_side=True)
            super().process_request_thread(request, client_address)
        except OSError as error:  # a client that is no client of ours, or is gone
            log.debug("a connection to the served log failed: %s", error)
            with suppress(OSError):
                request.close()
        finally:
            end.cancel()
            same.close()
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Note what went wrong with one connection; the others go on."""
        log.debug("an answer of the served log failed", exc_info=True)


class Handler(BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    protocol_version = "HTTP/1.1"
    server_version = "runnel"
    sys_version = ""
    timeout = IDLE_SECONDS

    def __init__(self, served: Served, *args: Any) -> None:
        """Answer with the files of a folder."""
        self._served = served
        super().__init__(*args)

    def do_GET(self) -> None:
        """Give the listing, or bytes of a file."""
        if not self._is_allowed():
            self._refuse(HTTPStatus.UNAUTHORIZED)
        elif self.path == "/logs":
            self._answer(HTTPStatus.OK, json.dumps(listing(self._served)).encode())
        elif self.path.startswith(_PREFIX) and self._served.files.fullmatch(self.path.removeprefix(_PREFIX)):
            self._send(self.path.removeprefix(_PREFIX))
        else:
            self._refuse(HTTPStatus.NOT_FOUND)

    def _is_allowed(self) -> bool:
        """Compare the token in a time that does not depend on how much of it is right; there is no request with a body."""
        given = self.headers.get_all("Authorization") or []
        if len(given) != 1 or self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            return False
        return hmac.compare_digest(given[0].encode("utf-8", "replace"), b"Bearer " + self._served.token)

    def _send(self, name: str) -> None:
        """Send a range of a file, cut to what one answer may have."""
        wanted = _RANGE.fullmatch(self.headers.get("Range") or "bytes=0-")
        with opened(self._served.folder, name) as found:
            if found is None:
                self._refuse(HTTPStatus.NOT_FOUND)
                return
            file, size = found
            begin = int(wanted[1]) if wanted else size
            last = min(size, begin + LARGEST_RANGE, int(wanted[2]) + 1 if wanted and wanted[2] else size)
            if begin >= last:
                self._refuse(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, {"Content-Range": f"bytes */{size}"})
                return
            data = os.pread(file, last - begin, begin)
            self._answer(
                HTTPStatus.PARTIAL_CONTENT, data, {"Content-Range": f"bytes {begin}-{begin + len(data) - 1}/{size}"}
            )

    def _refuse(self, status: HTTPStatus, headers: dict[str, str] | None = None) -> None:
        """Answer without a word, and end the connection: what follows may be anything."""
        self.close_connection = True
        self._answer(status, b"", {"Connection": "close"} | (headers or {}))

    def _answer(self, status: HTTPStatus, data: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/octet-stream", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        for at in range(0, len(data), _CHUNK):
            self.wfile.write(data[at : at + _CHUNK])

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse what is no request, or another one than GET, without a word."""
        self.close_connection = True
        self.send_response_only(code)
        self.send_header("Content-Length", "0")
        self.send_header("Connection", "close")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Note a request for --debug: its first line, never its headers."""
        log.debug("served log: %s %r", self.client_address[0], (format % args)[:200])


@contextmanager
def opened(folder: Path, name: str) -> Iterator[tuple[int, int] | None]:
    """Open a plain file of the folder itself; None for whatever else has the name, such as a link."""
    try:
        file = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        known = os.fstat(file)
        yield (file, known.st_size) if stat.S_ISREG(known.st_mode) else None
    finally:
        os.close(file)


def listing(served: Served) -> list[dict[str, Any]]:
    """Give the names and sizes of the files, and the texts of the small ones."""
    found: list[dict[str, Any]] = []
    with os.scandir(served.folder) as entries:
        names = sorted(entry.name for entry in entries)
    for name in names:
        is_note = served.notes.fullmatch(name) is not None
        if not is_note and served.files.fullmatch(name) is None:
            continue
        with opened(served.folder, name) as file:
            if file is not None:
                one: dict[str, Any] = {"name": name, "size": file[1]}
                found.append(
                    one | ({"text": os.pread(file[0], LARGEST_NOTE, 0).decode("ascii", "replace")} if is_note else {})
                )
    return found[-MOST_FILES:]


def check_token(token: bytes) -> None:
    """Refuse a token that can be guessed, or that cannot be sent."""
    if len(token) < SHORTEST_TOKEN or not all(33 <= byte <= 126 for byte in token):
        raise UsageError(
            "RUNNEL-SERVE-TOKEN",
            f"the token needs at least {SHORTEST_TOKEN} letters, digits and signs, without blanks",
            hint="make one: openssl rand -hex 32",
        )


def is_loopback(host: str) -> bool:
    """Say whether an address is one of this machine only.

    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "10.0.0.1", "node1")]
    [True, True, True, False, False, False]
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def server_tls(cert: Path, key: Path) -> ssl.SSLContext:
    """Give the context of a server that shows this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(
            "RUNNEL-SERVE-CERT",
            f"{cert.name} and {key.name} are no certificate and its key: {error.strerror or error}",
            hint="both are PEM files",
        ) from error
    return context
