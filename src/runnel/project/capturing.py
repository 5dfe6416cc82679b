"""Change data capture alone: opened for a source of a project, with its cycles in the project's state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runnel.connectors import open_capture
from runnel.pipeline.source_state import StateOfSource

if TYPE_CHECKING:
    from runnel.config import Source
    from runnel.connectors.base import Capture
    from runnel.project.project import Project


def capture_of(
    project: Project, source: Source, technique: str | None = None, *, expand_deletes: bool = False
) -> Capture:
    """Open the capture of a source by a technique, or by the source's own one."""
    state = StateOfSource(project.runtime, source.name)
    return open_capture(source, project.folder, state, technique, expand_deletes=expand_deletes)
