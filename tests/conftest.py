"""What every test shares: no deadline on a loaded machine, and one worker for all tests that need the same server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from runnel import redaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from runnel.engine.spark import SparkEngine

SHARED = ("spark", "cassandra", "postgres", "hbase", "mariadb", "mysql", "browser")

settings.register_profile("runnel", deadline=None, print_blob=True)
settings.load_profile("runnel")


@pytest.hookimpl(tryfirst=True)  # before the groups are read
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of one server (or of Spark) on one worker, so that it is started once."""
    for item in items:
        for name in SHARED:
            if item.get_closest_marker(name) is not None:
                item.add_marker(pytest.mark.xdist_group(name))
                break


@pytest.fixture
def say(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Give a function that puts a line into the closing summary: a seed, a count. Workers' own output is not shown."""
    return lambda text: record_property("says", text)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print what tests said."""
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, []):
            for name, text in getattr(report, "user_properties", []):
                if name == "says":
                    terminalreporter.write_line(f"{report.nodeid.split('::')[-1]}: {text}")


@pytest.fixture(autouse=True)
def no_kill_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep a label left in the caller's environment from killing the test run."""
    monkeypatch.delenv("RUNNEL_KILL_AT", raising=False)


@pytest.fixture(autouse=True)
def no_secrets_of_others() -> Iterator[None]:
    """Keep what one test hides from being hidden in the next one."""
    yield
    redaction.forget()


@pytest.fixture(scope="session")
def spark_engine() -> Iterator[SparkEngine]:
    """Give one warm Spark engine for the whole run."""
    from runnel.engine.spark import SparkEngine

    engine = SparkEngine(conf={"spark.driver.memory": "2g"})
    yield engine
    engine.close()
