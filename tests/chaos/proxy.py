"""Passes connections on to a PostgreSQL and cuts them at random, most often right after a COMMIT was passed on."""

from __future__ import annotations

import os
import random
import signal
import socket
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

CUT, CUT_AT_COMMIT = 0.001, 0.04


class Proxy:
    """A process of its own; while the file `calm` exists nothing is cut."""

    def __init__(self, to: int, calm: Path, seed: int) -> None:
        """Listen and begin."""
        listener = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.port: int = listener.getsockname()[1]
        self._calm, self._to = calm, to
        self.cuts = calm.with_name("cuts")
        self._process = os.fork()
        if not self._process:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            self._random = random.Random(seed)
            self._serve(listener)
        listener.close()

    def close(self) -> int:
        """End it and say how often it cut."""
        os.kill(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
        return self.cuts.stat().st_size if self.cuts.exists() else 0

    def _serve(self, listener: socket.socket) -> None:
        while True:
            client, _ = listener.accept()
            try:
                server = socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                client.close()
                continue
            for one, other, asks in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._pump, args=(one, other, asks), daemon=True).start()

    def _pump(self, one: socket.socket, other: socket.socket, asks: bool) -> None:
        try:
            while data := one.recv(65536):
                share = CUT_AT_COMMIT if asks and data.endswith(b"COMMIT\0") else CUT
                if asks and self._random.random() < share and not self._calm.exists():
                    if self._random.random() < 0.7:
                        other.sendall(data)  # the server does it, and nobody hears of it
                    with self.cuts.open("ab") as count:
                        count.write(b".")
                    break
                other.sendall(data)
        except OSError:
            pass
        for end in (one, other):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
