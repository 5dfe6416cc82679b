"""A real Cassandra 5.0 for tests: its jars come by coordinate through the Ivy inside PySpark, and stay in the user's cache.

A node has a folder of its own and loopback addresses only. A node that does not start is a failure, never a skip.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pytest

from runnel.engine.java import find_java

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

VERSION = "5.0.9"
JARS = "RUNNEL_CASSANDRA_JARS"
"""The environment variable that names another folder for the jars."""
START_SECONDS = 240
STOP_SECONDS = 60
FETCH_SECONDS = 900

_OPENED = [
    "java.base/java.lang",
    "java.base/java.lang.module",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/sun.nio.ch",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.util.jar",
    "jdk.management/com.sun.management.internal",
]
_EXPORTED = [
    "java.base/jdk.internal.misc",
    "java.base/java.lang.ref",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.management/com.sun.jmx.remote.security",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.sql/java.sql",
    "jdk.unsupported/sun.misc",
]
_LOGBACK = """<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%-5level %date{ISO8601} %logger{0} %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="OUT"/></root>
</configuration>
"""


def java() -> Path:
    """Give the Java that Cassandra runs on, which is the one Spark runs on."""
    home = find_java()
    assert home is not None, "Cassandra needs a Java 17 and none was found"
    return Path(home, "bin", "java")


def jars() -> Path:
    """Give the folder of Cassandra's jars; they are fetched once and kept between runs."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(os.environ.get(JARS) or cache / "runnel" / f"cassandra-{VERSION}")
    if not folder.is_dir():
        _fetch(folder)
    return folder


def _fetch(folder: Path) -> None:
    """Fetch beside the folder and rename, so that nobody sees half of it; whoever is second throws its copy away."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    ivy = list((Path(spec.origin).parent / "jars").glob("ivy-2*.jar"))
    assert ivy, "this PySpark has no Ivy to fetch Cassandra with"
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=folder.parent) as work:
        there = Path(work, "jars")
        command: list[str | Path] = [java(), "-jar", ivy[0], "-cache", Path(work, "ivy"), "-confs", "default"]
        command += ["-dependency", "org.apache.cassandra", "cassandra-all", VERSION]
        command += ["-retrieve", f"{there}/[artifact]-[revision](-[classifier]).[ext]"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False)
        assert done.returncode == 0, (
            f"Cassandra's jars could not be fetched: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
        assert list(there.glob("cassandra-all-*.jar")), f"Cassandra's jars are not complete: {done.stdout[-2000:]}"
        try:
            there.rename(folder)
        except OSError:
            assert folder.is_dir()


def free_port(host: str) -> int:
    """Give a port of this address that nobody listens at."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(frozen=True)
class NodeOptions:
    """What may differ between nodes; `settings` are further lines of cassandra.yaml, `flags` of the command line."""

    compatibility: str = "NONE"
    compression: str | None = None
    sync_period: str = "20ms"
    heap: str = "256m"
    triggers: Sequence[Path] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    flags: Sequence[str] = ()


class CassandraNode:
    """One server. `stop` ends it as an operator does, `kill` as a crash does; `start` brings it back with its data."""

    def __init__(self, home: Path, host: str, ports: tuple[int, int], options: NodeOptions, seed: str) -> None:
        """Write the configuration; nothing runs yet."""
        self.host, (self.port, self.storage_port) = host, ports
        self.home, self.storage = home, home / "storage"
        self.options = options
        self._seed = seed
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        triggers = home / "triggers"
        triggers.mkdir(parents=True)
        for jar in options.triggers:
            shutil.copy(jar, triggers)
        (home / "logback.xml").write_text(_LOGBACK)
        (home / "cassandra.yaml").write_text("\n".join(self._yaml()) + "\n")

    @property
    def cdc_raw(self) -> Path:
        """The folder of the segments that hold captured tables."""
        return self.storage / "cdc_raw"

    @property
    def commitlog(self) -> Path:
        """The folder of all segments."""
        return self.storage / "commitlog"

    @property
    def log(self) -> Path:
        """What the server said."""
        return self.home / "server.log"

    @property
    def pid(self) -> int | None:
        """The process while it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self) -> None:
        """Start and wait until it answers; `launch` and `wait` do the two apart."""
        self.launch()
        self.wait()

    def launch(self) -> None:
        """Start without waiting."""
        self._log = self.log.open("ab")
        self._process = subprocess.Popen(self._command(), stdout=self._log, stderr=self._log, cwd=self.home)

    def wait(self) -> None:
        """Wait until clients are answered."""
        process = self._process
        assert process is not None
        for _ in range(START_SECONDS * 4):
            assert process.poll() is None, f"Cassandra stopped at its start: {self.log.read_text()[-4000:]}"
            with socket.socket() as probe:
                probe.settimeout(1)
                if probe.connect_ex((self.host, self.port)) == 0:
                    return
            try:
                process.wait(timeout=0.25)
            except subprocess.TimeoutExpired:
                continue
        msg = f"Cassandra did not start: {self.log.read_text()[-4000:]}"
        raise AssertionError(msg)

    def stop(self) -> None:
        """End it after it has written everything down."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once; what was not synchronised to the log is lost."""
        self._end(signal.SIGKILL)

    def keyspace(self, replication: int = 1) -> str:
        """Create an empty keyspace of its own name and give the name."""
        name = "t_" + uuid.uuid4().hex[:12]
        options = f"{{'class': 'SimpleStrategy', 'replication_factor': {replication}}}"
        self.cql(f"CREATE KEYSPACE {name} WITH replication = {options}")
        return name

    def cql(self, *statements: str, consistency: str = "ALL") -> list[Any]:
        """Run statements at this node, with every replica's consent, and give the rows of the last one."""
        from cassandra import ConsistencyLevel
        from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
        from cassandra.policies import WhiteListRoundRobinPolicy

        policy = WhiteListRoundRobinPolicy([self.host])
        level = ConsistencyLevel.name_to_value[consistency]
        profile = ExecutionProfile(policy, consistency_level=level, request_timeout=120)
        profiles = {EXEC_PROFILE_DEFAULT: profile}
        with Cluster(
            [self.host],
            self.port,
            execution_profiles=profiles,
            protocol_version=5,
            connect_timeout=60,
            control_connection_timeout=60,
        ) as cluster:
            session = cluster.connect()
            rows: list[Any] = []
            for statement in statements:
                rows = list(session.execute(statement))
            return rows

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(number)
        try:
            self._process.wait(timeout=STOP_SECONDS)
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
            self._process = None
            if self._log is not None:
                self._log.close()

    def _yaml(self) -> Iterator[str]:
        options = self.options
        values: dict[str, Any] = {
            "cluster_name": "runnel",
            "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
            "num_tokens": 1,
            "listen_address": self.host,
            "rpc_address": self.host,
            "storage_port": self.storage_port,
            "native_transport_port": self.port,
            "endpoint_snitch": "SimpleSnitch",
            "commitlog_sync": "periodic",
            "commitlog_sync_period": options.sync_period,
            "commitlog_segment_size": "1MiB",
            "cdc_enabled": "true",
            "cdc_total_space": "1024MiB",
            "storage_compatibility_mode": options.compatibility,
            "auto_snapshot": "false",
            "hinted_handoff_enabled": "true",
            "materialized_views_enabled": "true",
        } | dict(options.settings)
        yield from (f"{name}: {value}" for name, value in values.items())
        yield "seed_provider:"
        yield "  - class_name: org.apache.cassandra.locator.SimpleSeedProvider"
        yield f'    parameters: [{{seeds: "{self._seed}"}}]'
        if options.compression is not None:
            yield f"commitlog_compression: [{{class_name: {options.compression}}}]"

    def _command(self) -> list[str]:
        lib, options = jars(), self.options
        command = [
            str(java()),
            "-Xms128m",
            f"-Xmx{options.heap}",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
        ]
        command += [f"--add-opens={name}=ALL-UNNAMED" for name in _OPENED]
        command += [f"--add-exports={name}=ALL-UNNAMED" for name in _EXPORTED]
        command += [f"-javaagent:{jar}" for jar in lib.glob("jamm-*.jar")]
        command += ["-Djdk.attach.allowAttachSelf=true", "-Dio.netty.tryReflectionSetAccessible=true"]
        command += ["-Djava.security.manager=allow", "-Dcassandra-foreground=yes"]
        command += [f"-Dcassandra.config=file://{self.home}/cassandra.yaml", f"-Dcassandra.storagedir={self.storage}"]
        command += [f"-Dcassandra.triggers_dir={self.home}/triggers"]
        command += [f"-Dlogback.configurationFile=file://{self.home}/logback.xml"]
        command += ["-Dcassandra.ring_delay_ms=1000", "-Dcassandra.skip_wait_for_gossip_to_settle=0"]
        command += ["-Dcassandra.superuser_setup_delay_ms=0", *options.flags]
        return [*command, "-cp", f"{lib}/*", "org.apache.cassandra.service.CassandraDaemon"]


@contextmanager
def cassandra(options: NodeOptions | None = None, host: str = "127.0.0.1") -> Iterator[CassandraNode]:
    """Run one node with its own folder; it is killed at the end, for nobody needs its data any more."""
    home = Path(tempfile.mkdtemp(prefix="rca"))
    ports = (free_port(host), free_port(host))
    node = CassandraNode(home / "node", host, ports, options or NodeOptions(), f"{host}:{ports[1]}")
    try:
        node.start()
        yield node
    finally:
        node.kill()
        shutil.rmtree(home, ignore_errors=True)


HOSTS = ("127.0.0.41", "127.0.0.42", "127.0.0.43")


@contextmanager
def ring(
    hosts: Sequence[str] = HOSTS, further: Mapping[str, Any] | None = None, options: NodeOptions | None = None
) -> Iterator[list[CassandraNode]]:
    """Run a node at each address, sharing the tokens evenly; with three replicas each node holds every row.

    `further` are more lines of every node's cassandra.yaml.
    """
    like = options or NodeOptions()
    home = Path(tempfile.mkdtemp(prefix="rca"))
    ports = (free_port(hosts[0]), free_port(hosts[0]))
    step = 2**64 // len(hosts)
    flags = ["-Dcassandra.consistent.rangemovement=false"]
    nodes = []
    for at, host in enumerate(hosts):
        settings = {"initial_token": -(2**63) + at * step, "auto_bootstrap": "false"} | dict(further or {})
        own = replace(like, heap="192m", settings=settings, flags=flags)
        nodes.append(CassandraNode(home / f"node{at}", host, ports, own, f"{hosts[0]}:{ports[1]}"))
    try:
        nodes[0].start()
        for node in nodes[1:]:
            node.launch()
        for node in nodes[1:]:
            node.wait()
        wait_until_joined(nodes)
        yield nodes
    finally:
        for node in nodes:
            node.kill()
        shutil.rmtree(home, ignore_errors=True)


def wait_until_joined(nodes: Sequence[CassandraNode]) -> None:
    """Wait until each node reaches all the others, which a read of every replica shows."""
    keyspace = nodes[0].keyspace(len(nodes))
    nodes[0].cql(f"CREATE TABLE {keyspace}.t (k int PRIMARY KEY)")
    for node in nodes:
        assert any(_all_answer(node, keyspace) for _ in range(START_SECONDS)), f"{node.host} does not reach all others"


def _all_answer(node: CassandraNode, keyspace: str) -> bool:
    from cassandra import RequestExecutionException, Unavailable
    from cassandra.cluster import NoHostAvailable

    try:
        node.cql(f"SELECT k FROM {keyspace}.t WHERE k = 1")
    except (RequestExecutionException, Unavailable, NoHostAvailable):
        return False
    return True


@pytest.fixture(scope="session")
def cassandra_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CassandraNode]:
    """Give one node to all tests of a session; its log has version 8, and it knows runnel's triggers."""
    from runnel.connectors.cassandra.techniques.trigger_jar import build_jar, find_compiler

    # Where there is no Java compiler, the tests of triggers fail and say so; the others need none.
    built = [build_jar(jars(), tmp_path_factory.mktemp("triggers") / "runnel.jar")] if find_compiler() else []
    with cassandra(NodeOptions(heap="768m", triggers=built)) as node:  # hundreds of tables
        yield node


@pytest.fixture(scope="session")
def cassandra_ring() -> Iterator[list[CassandraNode]]:
    """Give three nodes that make one ring."""
    with ring() as nodes:
        yield nodes


def main() -> None:
    """Run a node by hand until Ctrl-C: `make cassandra`."""
    import argparse

    parser = argparse.ArgumentParser(description="Run a throw-away Cassandra on loopback until Ctrl-C.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--compatibility", default="NONE", help="NONE (log version 8) or CASSANDRA_4 (version 7)")
    parser.add_argument("--compression", help="LZ4Compressor, ZstdCompressor, ...")
    parser.add_argument("--trigger", action="append", type=Path, default=[], help="a jar of triggers to load")
    given = parser.parse_args()
    options = NodeOptions(given.compatibility, given.compression, triggers=given.trigger)
    with cassandra(options, given.host) as node:
        print(f'in runnel.toml:  hosts = ["{node.host}"]   port = {node.port}')
        print(f"in Python:       Cluster(['{node.host}'], {node.port}).connect()")
        print(f"its logs:        {node.cdc_raw}")
        print(f"its process:     {node.pid}; Ctrl-C ends it and deletes its folder", flush=True)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            signal.pause()
        except KeyboardInterrupt:
            print("ending")


if __name__ == "__main__":
    main()
