"""A project's folder read into frozen data: `runnel.toml`, the SQL files beside it, and secrets that never print."""

from runnel.config.duration import parse_duration
from runnel.config.load import FILE, load
from runnel.config.secret import Secret, reveal
from runnel.config.settings import (
    SOURCE_TYPES,
    TARGET_TYPES,
    Config,
    Project,
    Rebuild,
    Run,
    Source,
    Spark,
    SqlFile,
    State,
    Target,
)

__all__ = [
    "FILE",
    "SOURCE_TYPES",
    "TARGET_TYPES",
    "Config",
    "Project",
    "Rebuild",
    "Run",
    "Secret",
    "Source",
    "Spark",
    "SqlFile",
    "State",
    "Target",
    "load",
    "parse_duration",
    "reveal",
]
