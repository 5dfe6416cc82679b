"""Where a check works: a cluster, a catalog in PostgreSQL, and a folder that all of them share; projects are made in it."""

from __future__ import annotations

import json
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.servers.postgres import postgres
from tests.servers.spark_cluster import WORKERS, spark_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.servers.postgres import PostgresServer
    from tests.servers.spark_cluster import SparkCluster

SPARK = {"spark.driver.host": "127.0.0.1", "spark.driver.memory": "1g", "spark.executor.memory": "1g"}


@dataclass(frozen=True)
class Workplace:
    """A running cluster and catalog server, and the shared folder; `run` are settings of every project's section of that name."""

    folder: Path
    cluster: SparkCluster
    server: PostgresServer
    run: tuple[str, ...] = ()

    def state(self, name: str) -> Mapping[str, str]:
        """Give where a new state is: several projects may share it."""
        return {"catalog": self.server.database(), "data": str(self.folder / f"{name}-data")}

    def project(
        self,
        name: str,
        source: str,
        views: Mapping[str, str],
        *,
        workers: int | None = None,
        state: Mapping[str, str] | None = None,
    ) -> Path:
        """Make a project with one source and some views on the cluster, or on so many of its workers; give its folder."""
        folder = self.folder / name
        (folder / "views").mkdir(parents=True)
        for view, sql in views.items():
            (folder / "views" / f"{view}.sql").write_text(f"CREATE MATERIALIZED VIEW {view} AS {sql};\n")
        conf = SPARK | ({"spark.cores.max": str(workers)} if workers else {})
        lines = ["[project]", f'name = "{name}"', "[state]", *_pairs(state or self.state(name))]
        lines += ["[spark]", f'master = "{self.cluster.url}"', "[spark.conf]", *_pairs(conf)]
        lines += ["[run]", 'prove = "off"', *self.run, source]
        (folder / "runnel.toml").write_text("\n".join(lines) + "\n")
        return folder


def _pairs(values: Mapping[str, str]) -> list[str]:
    return [f"{json.dumps(name)} = {json.dumps(value)}" for name, value in values.items()]


@contextmanager
def workplace(*run: str, hosts: Sequence[str] = WORKERS) -> Iterator[Workplace]:
    """Start all of it, and end and delete all of it."""
    folder = Path(tempfile.mkdtemp(prefix="runnel-cluster-"))
    try:
        with spark_cluster(hosts) as cluster, postgres() as server:
            yield Workplace(folder, cluster, server, run)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
