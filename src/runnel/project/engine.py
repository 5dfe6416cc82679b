"""The engine that a project's settings ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runnel import config

if TYPE_CHECKING:
    from runnel.config import Config
    from runnel.engine.base import Engine


def spark_engine(settings: Config, spark: Any = None) -> Engine:
    """Give the Spark engine a project's settings ask for; nothing is started yet."""
    from runnel.engine.driver import Driver
    from runnel.engine.spark import SparkEngine  # Spark is loaded only where it is used

    remote = settings.spark.remote
    conf = {key: str(config.reveal(value)) for key, value in settings.spark.conf.items()}
    return SparkEngine(
        spark,
        master=settings.spark.master,
        remote=None if remote is None else str(config.reveal(remote)),
        conf=conf,
        secret=[key for key, value in settings.spark.conf.items() if isinstance(value, config.Secret)],
        driver=Driver(driver_rows(settings, spark)),
    )


def driver_rows(settings: Config, spark: Any) -> int:
    """Give how many changes the driver works out itself: on a cluster far fewer, so that large ones use its executors."""
    from runnel.engine.driver import CHANGES, CHANGES_ON_CLUSTER

    if settings.run.driver_rows is not None:
        return settings.run.driver_rows
    master = spark.conf.get("spark.master", "") if spark is not None else settings.spark.master
    local = settings.spark.remote is None and str(master).startswith("local")
    return CHANGES if local else CHANGES_ON_CLUSTER
