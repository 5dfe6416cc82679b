"""Settings that decide what a view means: time zone, ANSI mode, case, decimal rules and whatever else is not known to be harmless.

A view keeps those it was computed with, as far as they are not the usual ones. Only `[spark] conf` decides; what a session has
from elsewhere is put back to Spark's own defaults, so that two processes with the same project mean the same.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from runnel.errors import Terminal

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from runnel.engine.base import Engine
    from runnel.lake.entries import ViewEntry

USUAL = {
    "spark.sql.session.timezone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.casesensitive": "false",
    "spark.sql.decimaloperations.allowprecisionloss": "true",
    "spark.sql.storeassignmentpolicy": "ANSI",
    "spark.sql.timestamptype": "TIMESTAMP_LTZ",
}
"""What counts as not said at all; the names in small letters."""
HARMLESS = tuple(
    f"spark.sql.{name.lower()}"
    for name in [
        "adaptive.",
        "artifact.",
        "autoBroadcastJoinThreshold",
        "broadcastTimeout",
        "broadcastExchange.",
        "cache.",
        "cartesianProductExec.",
        "catalog.",
        "catalogImplementation",
        "cbo.",
        "codegen.",
        "connect.",
        "debug.",
        "defaultSizeInBytes",
        "event.",
        "exchange.",
        "execution.arrow.",
        "execution.broadcast",
        "execution.pyspark.",
        "execution.python.",
        "execution.rangeExchange.",
        "execution.topKSortFallbackThreshold",
        "files.",
        "globalTempDatabase",
        "hive.",
        "inMemoryColumnarStorage.",
        "join.",
        "leafNodeDefaultParallelism",
        "limit.",
        "maven.",
        "maxMetadataStringLength",
        "maxPlanStringLength",
        "maxSinglePartitionBytes",
        "objectHashAggregate.",
        "optimizer.",
        "orc.",
        "parquet.aggregatePushdown",
        "parquet.columnarReaderBatchSize",
        "parquet.compression.",
        "parquet.enable",
        "parquet.filterPushdown",
        "parquet.recordLevelFilter.",
        "planChangeLog.",
        "planner.",
        "preserveCharVarchar",
        "pyspark.",
        "redaction.",
        "repl.",
        "sessionWindow.buffer.",
        "shuffle",
        "shuffledHashJoin",
        "shuffleHashJoin",
        "sort.",
        "sortMergeJoinExec.",
        "sources.bucketing.",
        "sources.parallelPartitionDiscovery.",
        "statistics.",
        "streaming.",
        "subexpressionElimination.",
        "thriftserver.",
        "ui.",
        "variable.",
        "warehouse.",
        "windowExec.",
    ]
)
"""How the names of settings begin that change how something is computed, never what; one that is not known counts."""


def decides(key: str) -> bool:
    """Say whether a setting may change what a query gives.

    >>> decides("spark.sql.ansi.enabled"), decides("spark.sql.shuffle.partitions"), decides("spark.sql.legacy.somethingNew")
    (True, False, True)
    """
    name = key.lower()
    return name.startswith("spark.sql.") and not name.startswith(HARMLESS)


def meaning(settings: Mapping[str, str], secret: Collection[str] = ()) -> dict[str, str]:
    """Give the settings that decide what views mean and are not the usual ones; of a secret one only a fingerprint.

    >>> meaning({"spark.sql.session.timeZone": "Asia/Tokyo", "spark.sql.ansi.enabled": "TRUE", "spark.driver.memory": "1g"})
    {'spark.sql.session.timeZone': 'Asia/Tokyo'}
    """
    said = {key: str(value).strip() for key, value in sorted(settings.items()) if decides(key)}
    unusual = {key: value for key, value in said.items() if USUAL.get(key.lower(), "").lower() != value.lower()}
    return {key: _fingerprint(value) if key in secret else value for key, value in unusual.items()}


def difference(before: Mapping[str, str], here: Mapping[str, str]) -> str:
    """Say which settings differ.

    >>> difference({"spark.sql.session.timeZone": "Asia/Tokyo"}, {})
    'spark.sql.session.timeZone was Asia/Tokyo and is UTC'
    """
    keys = [key for key in sorted({*before, *here}) if before.get(key) != here.get(key)]
    return ", ".join(f"{key} was {_said(before, key)} and is {_said(here, key)}" for key in keys)


def check_settings(engine: Engine, view: ViewEntry) -> None:
    """See that an engine means by a view's text what was meant when the view was computed."""
    if dict(view.settings) != engine.meaning:
        raise Terminal(
            "RUNNEL-VIEW-SETTINGS",
            f"view {view.name} was computed with other settings: {difference(view.settings, engine.meaning)}",
            hint="open the project with its files once, as `runnel run` does, to make it anew, or put [spark] conf back",
        )


def _said(settings: Mapping[str, str], key: str) -> str:
    return settings.get(key) or USUAL.get(key.lower(), "not set")


def _fingerprint(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()[:12]
