"""`runnel serve-log`: bytes of log files to whoever has the token, and nothing else to anybody, whatever is asked."""

from __future__ import annotations

import datetime
import http.client
import ipaddress
import json
import os
import re
import socket
import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from typer.testing import CliRunner

from runnel.cli import app
from runnel.config import Secret
from runnel.connectors.cassandra.log.mirror import INDEX
from runnel.connectors.cassandra.log.segment import NAME
from runnel.connectors.served.client import LogClient, check_url
from runnel.connectors.served.server import CONNECTIONS, LARGEST_RANGE, LogServer, Served, server_tls
from runnel.errors import RunnelError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator
    from pathlib import Path

TOKEN = "0123456789abcdef-token"
ALLOWED = {"Authorization": f"Bearer {TOKEN}"}
SEGMENT = "CommitLog-7-1700000000001.log"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder with a segment, its index, and what is none of anybody's business."""
    made = tmp_path / "cdc_raw"
    made.mkdir()
    (made / SEGMENT).write_bytes(bytes(range(256)) * 4)
    (made / SEGMENT.replace(".log", "_cdc.idx")).write_text("700")
    (made / "secret.txt").write_text("secret")
    (tmp_path / "CommitLog-7-1700000000002.log").write_text("outside")
    (made / "CommitLog-7-1700000000002.log").symlink_to(tmp_path / "CommitLog-7-1700000000002.log")
    (made / "CommitLog-7-1700000000003.log").mkdir()
    os.mkfifo(made / "CommitLog-7-1700000000004.log")
    return made


@contextmanager
def running(folder: Path, tls: ssl.SSLContext | None = None, longest: float | None = None) -> Iterator[LogServer]:
    with LogServer(Served(folder, TOKEN.encode(), NAME, INDEX), "127.0.0.1", 0, tls) as server:
        server.longest = longest or server.longest
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def ask(server: LogServer, path: str, method: str = "GET", **headers: str) -> tuple[int, bytes, str | None]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=10)
    try:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        response = connection.getresponse()
        return response.status, response.read(), response.headers.get("Content-Range")
    finally:
        connection.close()


def test_the_listing_has_segments_and_indexes_that_are_plain_files_and_nothing_else(folder: Path) -> None:
    with running(folder) as server:
        status, data, _ = ask(server, "/logs", **ALLOWED)
    assert status == 200
    assert json.loads(data) == [
        {"name": SEGMENT, "size": 1024},
        {"name": SEGMENT.replace(".log", "_cdc.idx"), "size": 3, "text": "700"},
    ]


def test_bytes_are_sent_in_ranges(folder: Path) -> None:
    whole = (folder / SEGMENT).read_bytes()
    with running(folder) as server:
        for header, begin, end in (("bytes=0-0", 0, 1), ("bytes=10-19", 10, 20), ("bytes=1000-", 1000, 1024)):
            answer = ask(server, f"/logs/{SEGMENT}", Range=header, **ALLOWED)
            assert answer == (206, whole[begin:end], f"bytes {begin}-{end - 1}/1024")
        assert ask(server, f"/logs/{SEGMENT}", **ALLOWED)[1] == whole
        for header in ("bytes=1024-", "bytes=5-4", "bytes=-5", "bytes=0-1,3-4", "lines=0-1", "bytes=" + "9" * 30 + "-"):
            assert ask(server, f"/logs/{SEGMENT}", Range=header, **ALLOWED) == (416, b"", "bytes */1024"), header


def test_a_long_range_is_cut(folder: Path) -> None:
    with (folder / SEGMENT).open("r+b") as file:
        file.truncate(LARGEST_RANGE + 5)
    with running(folder) as server:
        assert len(ask(server, f"/logs/{SEGMENT}", Range="bytes=0-", **ALLOWED)[1]) == LARGEST_RANGE
        client = LogClient(server.url, Secret(TOKEN))
        assert client.part(SEGMENT, LARGEST_RANGE, 100) == (bytes(5), LARGEST_RANGE + 5)
        assert client.part(SEGMENT, LARGEST_RANGE + 5, 100) == (b"", LARGEST_RANGE + 5)


@pytest.mark.parametrize(
    "path",
    [
        "/", "/logs/", "/logs?x", "/LOGS", "/logs/secret.txt", "/logs/../secret.txt", f"/logs/%2e%2e/{SEGMENT}",
        f"/logs/../cdc_raw/{SEGMENT}", f"/logs//etc/{SEGMENT}", f"/logs/{SEGMENT}/", f"/logs/{SEGMENT}%00", f"/logs/./{SEGMENT}",
        "/logs/CommitLog-7-1700000000002.log", "/logs/CommitLog-7-1700000000003.log", "/logs/CommitLog-7-1700000000004.log",
        "/logs/CommitLog-7-1.log\n", f"/logs/{SEGMENT.replace('.log', '_cdc.idx')}", "http://127.0.0.1/logs", "/logs/" + "a" * 5000,
    ],
)  # fmt: skip
def test_no_other_path_gives_anything(folder: Path, path: str) -> None:
    with running(folder) as server, socket.create_connection(server.server_address[:2], 10) as sent:  # type: ignore[arg-type]
        sent.sendall(f"GET {path} HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: sent.recv(65536), b""))
    assert re.match(rb"(HTTP/1.\d 40[04] |$)", answer), answer
    assert b"secret" not in answer
    assert b"outside" not in answer


@pytest.mark.parametrize(
    "headers",
    [
        {}, {"Authorization": TOKEN}, {"Authorization": f"Bearer {TOKEN[:-1]}"}, {"Authorization": f"Bearer {TOKEN}x"},
        {"Authorization": f"bearer {TOKEN}"}, {"Authorization": f"Bearer  {TOKEN}"}, {"Authorization": "Bearer é"},
        {"Authorization": "Basic " + TOKEN}, {"X_Authorization": f"Bearer {TOKEN}"}, {**ALLOWED, "Content_Length": "5"},
        {**ALLOWED, "Transfer_Encoding": "chunked"},
    ],
)  # fmt: skip
def test_whoever_has_no_token_learns_nothing(folder: Path, headers: dict[str, str]) -> None:
    with running(folder) as server:
        answers = {ask(server, path, **headers) for path in ("/logs", f"/logs/{SEGMENT}", "/nothing")}
    assert answers == {(401, b"", None)}


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "GETT"])
def test_nothing_but_get_is_answered(folder: Path, method: str) -> None:
    before = sorted(path.name for path in folder.iterdir())
    with running(folder) as server:
        assert ask(server, f"/logs/{SEGMENT}", method, **ALLOWED)[:2] == (501, b"")
    assert sorted(path.name for path in folder.iterdir()) == before


def test_clients_that_say_nothing_or_nonsense_keep_nobody_out_for_long(folder: Path) -> None:
    with running(folder, longest=0.5) as server:
        where: Any = server.server_address[:2]
        silent = [socket.create_connection(where, 10) for _ in range(CONNECTIONS)]
        with socket.create_connection(where, 10) as turned_away:
            assert turned_away.recv(1) == b""
        assert all(one.recv(1) == b"" for one in silent)
        for one in silent:
            one.close()
        for nonsense in (b"\x16\x03\x01\x02\x00\x01", b"A" * 200_000 + b"\r\n\r\n", b"GET\r\n\r\n", b"\x00" * 1000):
            with socket.create_connection(where, 10) as sent, suppress(OSError):  # it may be closed already
                sent.sendall(nonsense)
                sent.shutdown(socket.SHUT_WR)
        assert ask(server, "/logs", **ALLOWED)[0] == 200


def test_a_token_that_can_be_guessed_and_an_open_address_without_tls_are_refused(folder: Path) -> None:
    for token in ("", "short", "with blanks and more of them", "é" * 20):
        with pytest.raises(RunnelError, match="RUNNEL-SERVE-TOKEN"):
            LogServer(Served(folder, token.encode(), NAME, INDEX), "127.0.0.1", 0)
    with pytest.raises(RunnelError, match="RUNNEL-SERVE-TLS"):
        LogServer(Served(folder, TOKEN.encode(), NAME, INDEX), "0.0.0.0", 0)


def certificate(folder: Path, name: str = "127.0.0.1") -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "node")])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - datetime.timedelta(1)).not_valid_after(now + datetime.timedelta(1))
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(name))])
    made = builder.add_extension(names, critical=False).sign(key, hashes.SHA256())
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    none = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, none)
    (folder / "key.pem").write_bytes(pem)
    return folder / "cert.pem", folder / "key.pem"


def test_with_tls_the_certificate_is_checked(folder: Path, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    with running(folder, server_tls(cert, key)) as server:
        assert server.url.startswith("https://")
        client = LogClient(server.url, Secret(TOKEN), cert)
        assert [one.name for one in client.listing(NAME, INDEX)] == [SEGMENT, SEGMENT.replace(".log", "_cdc.idx")]
        client.close()
        with pytest.raises(RunnelError, match="RUNNEL-SERVED-CERT"):
            LogClient(server.url, Secret(TOKEN)).listing(NAME, INDEX)
        with pytest.raises(RunnelError, match="RUNNEL-SERVED-AWAY"):
            LogClient(server.url.replace("https", "http"), Secret(TOKEN)).listing(NAME, INDEX)
    with pytest.raises(RunnelError, match="RUNNEL-SERVE-CERT"):
        server_tls(key, cert)


def test_a_client_goes_on_when_its_connection_was_closed_and_says_what_is_wrong(folder: Path) -> None:
    with running(folder, longest=0.2) as server:
        client = LogClient(server.url, Secret(TOKEN))
        for _ in range(3):
            assert len(client.listing(NAME, INDEX)) == 2
            ended = client._connection
            assert ended is not None
            assert ended.sock.recv(1) == b""  # the server has ended it
        with pytest.raises(RunnelError, match="RUNNEL-SERVED-TOKEN") as raised:
            LogClient(server.url, Secret("another-token-0123456789")).listing(NAME, INDEX)
        assert "another-token" not in str(raised.value)
        with pytest.raises(FileNotFoundError):
            client.part("CommitLog-7-1.log", 0, 10)
    with pytest.raises(RunnelError, match="RUNNEL-SERVED-AWAY"):
        client.listing(NAME, INDEX)


@pytest.mark.parametrize("url", ["host", "ftp://h:1", "https://h", "http://10.0.0.1:1", "https://u:p@h:1", "https://h:1/x", "http://[::1", "https://h:x"])  # fmt: skip
def test_an_address_that_is_none_or_would_show_the_token_is_refused(url: str) -> None:
    with pytest.raises(RunnelError, match="RUNNEL-SERVED-URL"):
        check_url(url)


class Liar(BaseHTTPRequestHandler):
    """A server that answers whatever it is told to."""

    answers: dict[str, tuple[int, dict[str, str], bytes]]

    def do_GET(self) -> None:
        status, headers, data = self.answers["list" if self.path == "/logs" else "part"]
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(data))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def lying(**answers: tuple[int, dict[str, str], bytes]) -> Iterator[LogClient]:
    handler = type("Lying", (Liar,), {"answers": answers})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        client = LogClient(f"http://127.0.0.1:{server.server_address[1]}", Secret(TOKEN))
        try:
            yield client
        finally:
            client.close()
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{}", b"[1]", b"[[", b'[{"name": 1, "size": 1}]', b'[{"name": "x", "size": -1}]', b'[{"name": "x", "size": true}]',
        b'[{"name": "x"}]', b'[{"name": "x", "size": 1, "text": "' + b"9" * 65 + b'"}]', b"[" * 100_000, b" " * (5 << 20),
    ],
)  # fmt: skip
def test_a_listing_that_is_none_is_refused(data: bytes) -> None:
    with lying(list=(200, {}, data)) as client, pytest.raises(RunnelError, match="RUNNEL-SERVED-ANSWER"):
        client.listing(NAME, INDEX)


def test_names_that_are_none_of_log_files_are_left_alone() -> None:
    names = ["../../etc/passwd", "/etc/passwd", "CommitLog-7-1.log/../../x", "CommitLog-7-1.log\n", SEGMENT]
    data = json.dumps([{"name": name, "size": 1} for name in names]).encode()
    with lying(list=(200, {}, data)) as client:
        assert [one.name for one in client.listing(NAME, INDEX)] == [SEGMENT]


@pytest.mark.parametrize(
    ("status", "told", "data"),
    [
        (200, {}, b"x"), (206, {}, b"x"), (206, {"Content-Range": "bytes 5-5/9"}, b"x"), (206, {"Content-Range": "bytes 0-5/9"}, b"x"),
        (206, {"Content-Range": "bytes 0-19/99"}, b"x" * 20), (206, {"Content-Range": "bytes 0--1/9"}, b""), (416, {}, b""), (500, {}, b""),
    ],
)  # fmt: skip
def test_bytes_that_were_not_asked_for_are_refused(status: int, told: dict[str, str], data: bytes) -> None:
    with lying(part=(status, told, data)) as client, pytest.raises(RunnelError, match=r"RUNNEL-SERVED-(ANSWER|AWAY)"):
        client.part(SEGMENT, 0, 10)


def test_the_command_needs_a_token_and_a_folder(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RUNNEL_LOG_TOKEN", raising=False)

    def failed(*args: str) -> str:
        done = CliRunner().invoke(app, ["serve-log", *args])
        assert done.exit_code == 2
        return done.stderr

    assert "RUNNEL-SERVE-TOKEN" in failed("--folder", str(folder))
    assert "RUNNEL-SERVE-FOLDER" in failed("--folder", str(tmp_path / "nothing"))
    assert "RUNNEL-SERVE-TOKEN" in failed("--folder", str(folder), "--token-file", str(tmp_path / "nothing"))
    assert "RUNNEL-SERVE-CERT" in failed("--folder", str(folder), "--cert", str(tmp_path / "nothing"))
