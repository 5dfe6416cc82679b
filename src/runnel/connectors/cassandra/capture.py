"""`runnel capture` and `runnel prepare` for Cassandra: from the settings of a source to its techniques and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runnel.connectors.cassandra.client import Client
from runnel.connectors.cassandra.log.all_nodes import Logs
from runnel.connectors.cassandra.log.nodes import NodeLog, open_files, open_live
from runnel.connectors.cassandra.log.positions import position_of
from runnel.connectors.cassandra.settings import TECHNIQUES, Settings, read_settings
from runnel.connectors.cassandra.techniques import (
    audit,
    log_full,
    log_partial,
    prepare,
    scan,
    snapshot_differential,
    tracking,
)
from runnel.connectors.cassandra.techniques.trigger_jar import build_jar
from runnel.connectors.deltas.cycles import Cycles
from runnel.connectors.deltas.forms import write
from runnel.connectors.deltas.reduce import last_per_key, merge_equal
from runnel.connectors.skips import Skips
from runnel.errors import UsageError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from runnel import config
    from runnel.connectors.deltas.cycles import CaptureState
    from runnel.connectors.deltas.model import Delta
    from runnel.connectors.deltas.technique import Abilities, Position, Technique
    from runnel.connectors.skips import Skip

ABILITIES: tuple[Abilities, ...] = (
    audit.BY_TIME,
    audit.BY_VALUE,
    scan.ABILITIES,
    snapshot_differential.ABILITIES,
    log_partial.ABILITIES,
    log_full.ABILITIES,
    tracking.ABILITIES,
)


class Capture:
    """Captures the changes of one source, and prepares its tables for that."""

    def __init__(
        self,
        source: config.Source,
        folder: Path,
        state: CaptureState,
        technique: str | None = None,
        *,
        expand_deletes: bool = False,
    ) -> None:
        """Read the settings; nothing is connected to yet."""
        self._expand = expand_deletes
        self.settings: Settings = read_settings(source, folder)
        self.technique = technique or self.settings.capture
        if self.technique not in TECHNIQUES:
            raise UsageError(
                "RUNNEL-CAPTURE-TECHNIQUE",
                f"there is no technique {self.technique!r}",
                hint=nearest(self.technique, TECHNIQUES) or f"one of {', '.join(TECHNIQUES)}",
            )
        self.cycles = Cycles(state.cycles(self.technique))
        self._reader = f"{self.technique}: {source.name} of the state {state.id}"
        self._older = folder / ".runnel" / "capture" / source.name / self.technique / "state.json"
        self.skips = Skips(state)

    def position(self) -> Position | None:
        """Give the end of the last cycle."""
        state = self.cycles.state()
        return None if state is None else state.upto

    def deltas(self, since: Position | None = None, *, last: bool = False) -> Iterator[Delta]:
        """Run a cycle and give its deltas; with `since`, give what happened after that position and remember nothing."""
        if since is None:
            self._refuse_older()
        technique = self.open()
        try:
            if since is None and isinstance(self.settings.start, dict):
                self.cycles.begin_at(self.settings.start)
            if since is None:
                found: Iterable[Delta] = self.cycles.run(technique, tell_first=self.settings.start != "latest")
            else:
                found = self.cycles.read_once(technique, since)
            if last:
                found = last_per_key(found)
            yield from merge_equal(found) if self.settings.merge_equal else found
        finally:
            technique.close()

    def lines(self, since: Position | None, form: str, *, last: bool) -> Iterator[str]:
        """Give the same as lines in one of the forms."""
        settings = self.settings
        for delta in self.deltas(since, last=last):
            yield write(delta if settings.times else delta.undated(), form, settings.separators)

    def skip(self, position: Position, reason: str) -> None:
        """Go past the mutations that end at a position of some logs: `{folder: [segment, position]}`."""
        hosts = dict(position.get("hosts", position))
        if not hosts or "time" in hosts or not reason.strip():
            raise UsageError(
                "RUNNEL-SKIP",
                "nothing says which change is to be skipped, and why",
                hint="give the position that the error names, and a reason: --position '{\"...\": [7, 100]}' --reason '...'",
            )
        self.skips.add({host: list(position_of(hosts, host)) for host in hosts}, reason.strip())

    def skipped(self) -> list[Skip]:
        """Give what was skipped so far."""
        return self.skips.all()

    def _refuse_older(self) -> None:
        """Refuse to begin anew where an earlier version has kept its cycles outside of the state."""
        if self._older.exists() and self.cycles.state() is None:
            raise UsageError(
                "RUNNEL-CAPTURE-OLDER",
                f"{self._older.parent} holds the cycles of this capture as an earlier version kept them",
                hint="run it once more with that version, which reports what it has not told, then delete the folder: the next capture "
                "begins anew and reports all that exists",
            )

    def prepare(self, say: Callable[[str], None], *, undo: bool = False) -> None:
        """Make, or remove, what the technique needs in the store."""
        if self.technique not in prepare.TECHNIQUES:
            raise UsageError(
                "RUNNEL-CAPTURE-PREPARE",
                f"{self.technique} needs nothing in the store",
                hint=f"prepare is for {' and '.join(prepare.TECHNIQUES)}",
            )
        if not undo:
            self._refuse_older()
        with Client(self.settings) as client:
            work = prepare.undo if undo else prepare.prepare
            work(client, self.technique, self.cycles, say)

    def open(self) -> Technique:
        """Connect, and give the technique; `cycles` runs it, and whoever opened it closes it."""
        if self._expand and self.technique == "log-partial":
            raise UsageError(
                "RUNNEL-CAPTURE-EXPAND",
                "the partial log does not know which columns a delete takes",
                hint="use --technique log",
            )
        if self.settings.logs:
            return self._open_files()
        client = Client(self.settings)
        try:
            tables = client.chosen_tables()
            match self.technique:
                case "scan":
                    return scan.Scan(client, tables)
                case "snapshot":
                    return snapshot_differential.SnapshotDifferential(client, tables)
                case "audit":
                    return audit.Audit(client, tables)
                case "trigger":
                    return tracking.Tracking(client, tables)
            return self._of_logs(open_live(self.settings, client), client)
        except BaseException:
            client.close()
            raise

    def _open_files(self) -> Technique:
        if self.technique not in ("log", "log-partial"):
            raise UsageError(
                "RUNNEL-CAPTURE-TECHNIQUE",
                f"{self.technique} asks the server, and this source has only its logs",
                hint="use --technique log or log-partial",
            )
        return self._of_logs(open_files(self.settings), None)

    def _of_logs(self, nodes: list[NodeLog], client: Client | None) -> Technique:
        logs = Logs(nodes, self.settings, client, self._reader, self.skips)
        if self.technique == "log-partial":
            return log_partial.LogPartial(logs)
        return log_full.LogFull(logs, expand=self._expand)


def build_triggers(libraries: Path, target: Path) -> Path:
    """Build the jar of triggers with the jars of a Cassandra."""
    return build_jar(libraries, target)
