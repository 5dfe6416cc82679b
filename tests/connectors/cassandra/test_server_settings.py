"""What a server's settings mean for its reader: room for the log, how late it is seen, and encrypted connections."""

from __future__ import annotations

import datetime as dt
import ipaddress
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12

from runnel.connectors.cassandra.log.space import LogSettings, advice, log_settings, space_problems
from tests.connectors.cassandra.conftest import Shop
from tests.servers.cassandra import NodeOptions, cassandra

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MIB = 1 << 20
HOST = "127.0.0.61"


def test_settings_are_read_with_their_units_old_and_new() -> None:
    old = {"cdc_total_space_in_mb": "4096", "commitlog_sync_period_in_ms": "10000", "commitlog_segment_size_in_mb": "8"}
    assert log_settings(old) == LogSettings(4096 * MIB, 8 * MIB, 10.0)
    new = {"cdc_total_space": "2GiB", "commitlog_sync": "batch", "cdc_block_writes": "false"}
    assert log_settings(new) == LogSettings(2048 * MIB, 32 * MIB, 0.0, blocks=False)
    assert log_settings({}) == LogSettings()


def test_a_log_that_is_full_or_nearly_full_is_a_problem(tmp_path: Path) -> None:
    def said(total: int) -> list[str]:
        return [str(problem) for problem in space_problems("sources.x", LogSettings(total, 1), [tmp_path])]

    (tmp_path / "CommitLog-7-1.log").write_bytes(bytes(1000))
    assert said(2000) == []
    assert len(said(1100)) == 1
    assert "refuses writes" in said(1000)[0]
    assert next(iter(advice("sources.x", LogSettings(1000, 1, sync=10.0)))).startswith(
        "sources.x: commitlog_sync_period is 10 s"
    )
    assert list(advice("sources.x", LogSettings(1000, 1, sync=0.1))) == []
    assert len(list(advice("sources.x", LogSettings()))) == 1


class Authority:
    """Signs certificates, and keeps them as the two sides want them."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        self.certificate = self._signed(self._name, self._key, authority=True)
        self.path = folder / f"{name}.pem"
        self.path.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))

    def _signed(self, name: x509.Name, key: Any, *, authority: bool) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        made = x509.CertificateBuilder().subject_name(name).issuer_name(self._name).public_key(key.public_key())
        made = made.serial_number(x509.random_serial_number()).not_valid_before(now - dt.timedelta(days=1))
        made = made.not_valid_after(now + dt.timedelta(days=1))
        made = made.add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        where = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))])
        return made.add_extension(where, critical=False).sign(self._key, hashes.SHA256())

    def key_store(self) -> Path:
        """Give a server's key and certificate, with the authority that clients are checked by."""
        key = ec.generate_private_key(ec.SECP256R1())
        own = self._signed(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "node")]), key, authority=False)
        secret = serialization.BestAvailableEncryption(b"cassandra")
        path = self.folder / "server.p12"
        path.write_bytes(pkcs12.serialize_key_and_certificates(b"node", key, own, [self.certificate], secret))
        return path

    def client(self) -> tuple[Path, Path]:
        """Give the files of a client's certificate and key."""
        key = ec.generate_private_key(ec.SECP256R1())
        own = self._signed(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "runnel")]), key, authority=False)
        cert, secret = self.folder / "client.pem", self.folder / "client.key"
        cert.write_bytes(own.public_bytes(serialization.Encoding.PEM))
        form = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        secret.write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))
        return cert, secret


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"), "authority")


@pytest.fixture(scope="module")
def small(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """Give a project on a server with little room for logs, which speaks TLS too."""
    store = f"keystore: {authority.key_store()}, keystore_password: cassandra, store_type: PKCS12"
    settings = {
        "cdc_total_space": "4MiB",
        "client_encryption_options": f"{{enabled: true, optional: true, {store}}}",
    }
    with cassandra(NodeOptions(settings=settings), HOST) as node:
        shop = Shop(tmp_path_factory.mktemp("project"), node)
        shop.cql("CREATE TABLE KS.t (k int PRIMARY KEY, v text) WITH cdc = true")
        yield shop
        shop.close()


@pytest.mark.cassandra
def test_an_encrypted_connection_checks_the_certificate_of_the_server(
    small: Shop, authority: Authority, tmp_path: Path
) -> None:
    cert, key = authority.client()
    small.cql("INSERT INTO KS.t (k, v) VALUES (1, 'one')")
    small.configure(tables=["t"], tls=True, ca=str(authority.path), cert=str(cert), key=str(key))
    assert small.told("scan") == ["ups v:one"]
    other = Authority(tmp_path, "other")
    small.configure(tables=["t"], tls=True, ca=str(other.path), timeout="5 seconds")
    assert "RUNNEL-CASSANDRA-TLS" in small.run("capture", "shop", "--technique", "scan", exit_code=2)
    small.configure(tables=["t"], ca=str(authority.path))
    assert "RUNNEL-CONFIG-VALUE" in small.run("capture", "shop", exit_code=2)
    small.configure(tables=["t"], tls=True, ca=str(authority.path), cert=str(cert))
    assert "RUNNEL-CONFIG-MISSING" in small.run("capture", "shop", exit_code=2)
