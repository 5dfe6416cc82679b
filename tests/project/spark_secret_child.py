"""Starts Spark for the project in argv[1] and says, as hashes, which settings it got, and how Spark itself shows them."""

from __future__ import annotations

import hashlib
import sys

import runnel

NAMES = ("spark.hadoop.fs.s3a.secret.key", "spark.shop.note", "spark.shop.plain")


def main(folder: str) -> None:
    with runnel.open(folder) as project:
        session = project.runtime.engine.session  # type: ignore[attr-defined]
        jvm = session.sparkContext._jvm
        got = [session.sparkContext.getConf().get(name) for name in NAMES]
        got.append(jvm.java.lang.System.getProperty("shop.password"))
        print("got", *(hashlib.sha256(str(value).encode()).hexdigest()[:12] for value in got))
        shown = dict(session.sql("SET").collect())
        print("shown", *(shown[name] for name in NAMES))
        project.create_table("t", "id BIGINT", key=["id"])
        print("rows", project.query("SELECT count(*) AS n FROM t").to_pylist())


if __name__ == "__main__":
    main(sys.argv[1])
