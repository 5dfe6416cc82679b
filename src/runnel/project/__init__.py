"""The facade users touch: `open`, `create`, `memory` and the `Project` they give."""

from runnel.project.project import Project, create, memory
from runnel.project.project import open_project as open

__all__ = ["Project", "create", "memory", "open"]
