"""What the views of a project must hold, from the rows that a test wrote and the views' own texts.

Nothing that the project stores is read, but for how far each view has come and which columns its `*` means. Only where a text
leaves a choice open (which of two equal rows comes first) are the view's own rows what the views over it must have read.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from runnel.compiler.choices import open_choices
from runnel.engine.base import Rows
from runnel.model import types
from runnel.model.relation import Kind
from tests.compiler.harness import difference
from tests.compiler.oracle import Bags, answer
from tests.support.bags import bag_difference

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runnel.compiler.choices import Choices
    from runnel.engine.base import Engine
    from runnel.lake.entries import ViewEntry
    from runnel.model.relation import Column
    from runnel.project import Project
    from tests.compiler.random_views import Batch, Case


@dataclass
class Expected:
    """Remembers what was written, and answers the views' texts over it as of any epoch."""

    engine: Engine
    case: Case
    written: list[tuple[int, Bags]] = field(default_factory=list)
    answers: dict[tuple[str, int, str], pa.Table] = field(default_factory=dict)

    def applied(self, project: Project, batch: Batch) -> None:
        """Remember a batch that is about to be written: it counts from the next epoch on."""
        bags = deepcopy(self.written[-1][1]) if self.written else Bags(self.case.tables)
        bags.apply(batch)
        self.written.append((project.status().epoch + 1, bags))

    def problem(self, project: Project, name: str) -> str:
        """Say how a view's rows differ from the answer to its text as of its frontier; '' where they do not."""
        view = project.runtime.lake.snapshot().views[name]
        columns = project.view(name).relation.rows
        found, wanted = project.view(name).to_arrow(), self._answer(project, view)
        problem = self._compared(found, wanted, columns)
        choices = self._choices(project, view)
        if not problem or not choices.any:
            return problem
        for family in choices.families:
            if not family and found.num_rows != wanted.num_rows:
                return f"{found.num_rows} rows for {wanted.num_rows}"
            at = [i for i, column in enumerate(columns) if column.name in family]
            problem = self._compared(found.select(at), wanted.select(at), [columns[i] for i in at])
            if problem:
                return problem
        return ""

    def _answer(self, project: Project, view: ViewEntry) -> pa.Table:
        known = (view.name, view.frontier, repr(view.seen))
        if known not in self.answers:
            inputs = {table.name: self._table(view, table.name) for table in self.case.tables}
            names = [name for name, _ in self.case.views]
            for name in names[: names.index(view.name)]:
                if name.replace("`", "``").lower() in view.sql.lower():  # else it cannot be read
                    inputs[name] = self._view(project, name, view.frontier)
            columns = project.view(view.name).relation.rows
            self.answers[known] = answer(self.engine, view.sql, inputs, columns)
        return self.answers[known]

    def _table(self, view: ViewEntry, name: str) -> Rows:
        """Give a table's rows as of a view's frontier; columns that were added later are NULL, and there if it knows them."""
        bags = [bags for since, bags in self.written if since <= view.frontier][-1]
        table, columns = bags.table(name), list(bags.tables[name].columns)
        seen = view.seen.get(name, ())
        for added in (column for column in seen if column not in table.column_names):
            table = table.append_column(added, pa.nulls(table.num_rows, pa.string()))
            columns.append(type(columns[0])(added, types.parse("string")))
        return Rows(table, tuple(columns))

    def _view(self, project: Project, name: str, epoch: int) -> Rows:
        """Give the rows of a view as of an epoch, at which it may have been behind."""
        then = project.runtime.lake.snapshot(epoch)
        columns = then.relations[name].rows
        if self._choices(project, then.views[name]).any:
            return Rows(project.view(name).to_arrow(at=epoch), columns)
        return Rows(self._answer(project, then.views[name]), columns)

    def _choices(self, project: Project, view: ViewEntry) -> Choices:
        relations = project.runtime.lake.snapshot().relations
        shown = {name: relation for name, relation in relations.items() if relation.kind is not Kind.STAGE}
        return open_choices(view.sql, shown, [c.name for c in shown[view.name].rows], loose=True)

    def _compared(self, found: pa.Table, wanted: pa.Table, columns: Sequence[Column]) -> str:
        if self.engine.name == "spark":
            return bag_difference(found, wanted)
        return difference(found, wanted, columns, loose=True)
