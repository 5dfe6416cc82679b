"""The command `serve-log`: a node's log folder, served to a runnel elsewhere. It needs neither a project nor Spark."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from runnel.cli.escapes import echo
from runnel.config import Secret
from runnel.connectors.served.server import LogServer, Served, listing, server_tls
from runnel.errors import UsageError

TOKEN = "RUNNEL_LOG_TOKEN"
PORT = 9743


def serve_log(
    folder: Annotated[Path, typer.Option(help="The folder of log segments, such as cdc_raw.", metavar="DIR")],
    address: Annotated[str, typer.Option(help="Where to listen; beyond this machine only with TLS.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes a free one.", min=0, max=65535)] = PORT,
    token_file: Annotated[
        Path | None, typer.Option(help=f"The token that clients need, instead of ${TOKEN}.", metavar="FILE")
    ] = None,
    cert: Annotated[Path | None, typer.Option(help="The certificate (PEM) for TLS.", metavar="FILE")] = None,
    key: Annotated[Path | None, typer.Option(help="Its key (PEM).", metavar="FILE")] = None,
) -> None:
    """Serve the log segments of a folder, read-only, to whoever has the token; ends with Ctrl-C."""
    from runnel.connectors.cassandra.log.mirror import INDEX
    from runnel.connectors.cassandra.log.segment import NAME

    if not folder.is_dir():
        raise UsageError("RUNNEL-SERVE-FOLDER", f"there is no folder {folder}", hint="--folder DIR, such as cdc_raw")
    if (cert is None) != (key is None):
        raise UsageError("RUNNEL-SERVE-CERT", "--cert and --key belong together", hint="give both, or none")
    tls = server_tls(cert, key) if cert is not None and key is not None else None
    served = Served(folder.resolve(), _token(token_file).reveal().encode(), NAME, INDEX)
    with LogServer(served, address, port, tls) as server:
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
        echo(f"serving {len(listing(served))} files of {folder} at {server.url}")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            echo("stopped")


def _token(file: Path | None) -> Secret:
    """Read the token, from the file or from the environment; it is never shown."""
    if file is None:
        found = os.environ.get(TOKEN, "")
    else:
        try:
            found = file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeError) as error:
            raise UsageError(
                "RUNNEL-SERVE-TOKEN", f"the token in {file} cannot be read", hint="a file of one line"
            ) from error
    if not found:
        raise UsageError(
            "RUNNEL-SERVE-TOKEN",
            "a log is served only to whoever has a token, and there is none",
            hint=f"set {TOKEN}, or give --token-file FILE; make one: openssl rand -hex 32",
        )
    return Secret(found)
