"""Reads log files that `runnel serve-log` serves elsewhere. What the server says is checked: names, sizes, lengths."""

from __future__ import annotations

import http.client
import json
import re
import ssl
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from runnel.connectors.served.server import LARGEST_NOTE, MOST_FILES, is_loopback
from runnel.errors import Terminal, Transient, Unreachable, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from runnel.config import Secret
    from runnel.errors import RunnelError

TIMEOUT_SECONDS = 20.0
LONGEST_LISTING = 4 << 20
_AT_END = re.compile(r"bytes \*/(\d{1,18})")
_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})")


@dataclass(frozen=True)
class Listed:
    """A file of the server; `text` is what a small one holds."""

    name: str
    size: int
    text: str | None = None


def check_url(url: str) -> None:
    """Refuse what is no address of a served log, and one that would send the token in the clear."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname or port is None:
        raise UsageError("RUNNEL-SERVED-URL", f"{url!r} is no address of a served log", hint="https://host:port")
    if parts.path not in ("", "/") or parts.query or parts.fragment or parts.username:
        raise UsageError("RUNNEL-SERVED-URL", f"{url!r} has more than a host and a port", hint="https://host:port")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise UsageError(
            "RUNNEL-SERVED-URL", f"{url!r} would send the token in the clear", hint="use https:// beyond this machine"
        )


class LogClient:
    """Asks one server; connects when it is first asked, and again after whatever went wrong. Several threads may use it."""

    def __init__(self, url: str, token: Secret, ca: Path | None = None) -> None:
        """Keep where it is; `ca` is trusted instead of what this machine trusts."""
        check_url(url)
        parts = urlsplit(url)
        self.url = url
        self._host, self._port = str(parts.hostname), int(parts.port or 0)
        self._token = token
        self._tls = (
            None if parts.scheme == "http" else ssl.create_default_context(cafile=None if ca is None else str(ca))
        )
        self._connection: http.client.HTTPConnection | None = None
        self._lock = threading.Lock()

    def listing(self, files: re.Pattern[str], notes: re.Pattern[str]) -> list[Listed]:
        """List the files whose names match; others are left alone, whatever the server calls them."""
        status, data, _ = self._ask("/logs", LONGEST_LISTING)
        if status != http.client.OK:
            raise self._refused(status)
        try:
            told: list[dict[str, Any]] = json.loads(data)
            found = [Listed(one["name"], one["size"], one.get("text")) for one in told]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise self._wrong("its listing cannot be read") from error
        if not isinstance(told, list) or len(found) > MOST_FILES or not all(map(_is_plausible, found)):
            raise self._wrong("its listing is none of log files")
        return [one for one in found if (notes if one.text is not None else files).fullmatch(one.name)]

    def part(self, name: str, begin: int, length: int) -> tuple[bytes, int]:
        """Give bytes of a file, at most `length`, none only at its end; and the size that the file has now."""
        status, data, headers = self._ask(f"/logs/{name}", length, {"Range": f"bytes={begin}-{begin + length - 1}"})
        if status == http.client.NOT_FOUND:
            raise FileNotFoundError(name)
        if status == http.client.REQUESTED_RANGE_NOT_SATISFIABLE and (end := _AT_END.fullmatch(_range(headers))):
            return b"", int(end[1])
        if status != http.client.PARTIAL_CONTENT:
            raise self._refused(status)
        told = _CONTENT_RANGE.fullmatch(_range(headers))
        if told is None or int(told[1]) != begin or int(told[2]) + 1 - begin != len(data) or not data:
            raise self._wrong("it sent other bytes than it was asked for")
        return data, int(told[3])

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, path: str, most: int, headers: dict[str, str] | None = None) -> tuple[int, bytes, Any]:
        """Send a request; a connection that the server has closed meanwhile is opened again, once."""
        with self._lock:
            for fresh in (self._connection is None, True):
                try:
                    return self._asked(path, most, headers or {})
                except ssl.SSLCertVerificationError as error:
                    self._drop()
                    raise self._untrusted(error) from error
                except (OSError, http.client.HTTPException) as error:
                    self._drop()
                    if fresh:
                        raise self._away(error) from error
                except BaseException:
                    self._drop()
                    raise
        raise AssertionError

    def _asked(self, path: str, most: int, headers: dict[str, str]) -> tuple[int, bytes, Any]:
        if self._connection is None:
            self._connection = (
                http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_SECONDS)
                if self._tls is None
                else http.client.HTTPSConnection(self._host, self._port, timeout=TIMEOUT_SECONDS, context=self._tls)
            )
        self._connection.request("GET", path, headers={"Authorization": f"Bearer {self._token.reveal()}"} | headers)
        response = self._connection.getresponse()
        data = response.read(most + 1)
        if len(data) > most:
            raise self._wrong("it sent more than it was asked for")
        if response.will_close:
            with suppress(OSError):
                self._drop()
        return response.status, data, response.headers

    def _refused(self, status: int) -> RunnelError:
        if status == http.client.UNAUTHORIZED:
            return Terminal(
                "RUNNEL-SERVED-TOKEN", f"{self.url} refuses the token", hint="both sides need the same one: log_token"
            )
        return Transient("RUNNEL-SERVED-AWAY", f"{self.url} answers with status {status}", hint="it is tried again")

    def _away(self, error: Exception) -> RunnelError:
        said = str(error) or type(error).__name__
        return Unreachable(
            "RUNNEL-SERVED-AWAY",
            f"{self.url} cannot be reached: {said[:200]}",
            hint="see that runnel serve-log runs there",
        )

    def _untrusted(self, error: ssl.SSLCertVerificationError) -> RunnelError:
        return Terminal(
            "RUNNEL-SERVED-CERT",
            f"the certificate of {self.url} is not trusted: {error.verify_message}",
            hint="name whom to trust: log_ca = 'ca.pem'; the certificate has to name the host",
        )

    def _wrong(self, what: str) -> Terminal:
        return Terminal("RUNNEL-SERVED-ANSWER", f"{self.url} is no served log: {what}", hint="check the address")


def _range(headers: Any) -> str:
    return str(headers.get("Content-Range", ""))


def _is_plausible(one: Listed) -> bool:
    small = one.text is None or (isinstance(one.text, str) and len(one.text) <= LARGEST_NOTE)
    return isinstance(one.name, str) and type(one.size) is int and 0 <= one.size < 1 << 40 and small
