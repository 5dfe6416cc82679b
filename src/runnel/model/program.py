"""Delta programs: the SQL that turns changes of inputs into the change of a view. Plain data; engines run it, `explain` prints it.

SQL in a program is Spark's and names each input as one backquoted identifier made of the relation's name and a role:

| role | what it holds | columns |
|---|---|---|
| `delta` | signed rows by which the relation changed in the range (a, b] | `rows` + `_weight` |
| `updated`, `removed` | of a table with a key: the part of its `delta` whose keys are there before and after, or only before | the same |
| `old`, `new` | signed rows that add up to the relation as of a, as of b | `rows` + `_weight` |
| `rows` | the relation's rows as of b, each as often as it occurs | `rows` |
| `stored_delta`, `stored_old` | of a relation of partials: its stored sums | `columns` + `_weight` |

>>> name("shop.orders", "delta")
'`shop.orders__delta`'
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from runnel.model.relation import Column, Relation

Role = Literal["delta", "updated", "removed", "old", "new", "rows", "stored_delta", "stored_old"]
ROLES: tuple[Role, ...] = ("delta", "updated", "removed", "old", "new", "rows", "stored_delta", "stored_old")
PARTS: tuple[Role, ...] = ("updated", "removed")
"""The roles that hold some of a table's change, sorted by key."""
Reads = frozenset[tuple[str, Role]]
NOTHING: Reads = frozenset()
Around = tuple[str, ...]
"""A text with gaps, as the pieces before, between and after them: what fills the gaps joins the pieces."""
JUST_TERMS: Around = ("", "")


def quote(identifier: str) -> str:
    """Write any name as one identifier of Spark's SQL."""
    return "`" + identifier.replace("`", "``") + "`"


def name(relation: str, role: Role) -> str:
    """Write an input's name as it stands in a program's SQL."""
    return quote(f"{relation}__{role}")


def changes(relation: str) -> str:
    """Name the changes of a relation, which event views read by the role `delta`; they are stored nowhere."""
    return f"changes({relation})"


class Strategy(str, Enum):
    """How a view follows its inputs; `FULL` recomputes and says so."""

    LINEAR = "linear"
    KEYS = "keys"
    FULL = "full"
    REFUSED = "refused"


@dataclass(frozen=True)
class Term:
    """One SELECT of a delta; it gives no rows when any relation of `deltas` did not change."""

    sql: str
    deltas: frozenset[str]
    reads: frozenset[tuple[str, Role]]

    def live(self, changed: frozenset[str], empty: Reads = NOTHING) -> bool:
        """Say whether it can give rows when just these relations changed, and these parts of changes have no rows."""
        return self.deltas <= changed and self.reads.isdisjoint(empty)


@dataclass(frozen=True)
class Shared:
    """A join that several views may read: its rows, its change, and a step's change as a SELECT from the join's change.

    Where two or more views of an epoch have the same join, its change is computed once.
    """

    relation: Relation
    terms: tuple[Term, ...]
    term: Term

    def delta_sql(self, changed: frozenset[str], empty: Reads = NOTHING) -> str | None:
        """Give the SQL of the join's change when just these relations changed; None when it is empty for certain."""
        live = [term.sql for term in self.terms if term.live(changed, empty)]
        return "\nUNION ALL\n".join(live) if live else None

    def delta_reads(self, changed: frozenset[str], empty: Reads = NOTHING) -> Reads:
        """Say which inputs that SQL names."""
        return frozenset(read for term in self.terms if term.live(changed, empty) for read in term.reads)

    @property
    def parts(self) -> Reads:
        """The parts of changes that its terms begin with: where one is empty, its terms are."""
        return _parts(self.terms)


@dataclass(frozen=True)
class Step:
    """Computes the signed rows (or the stored sums) by which `target` changes, and its contents from scratch.

    The change is the pieces of `around` with the UNION ALL of the terms that can give rows between each two of them;
    `around_reads` are the inputs that `around` itself names, beside those of the terms. `extra` terms are added to that behind `around`. `initial`
    computes the stored contents over the `new` (or `rows`) role of its inputs; its last column is `_weight`, like every term's.
    A step of a `FULL` strategy has no terms: its change is `initial` minus what is stored.

    A step that is not `stored` finds something out for the steps after it in the same program (which groups must be read
    again): its change is an input of theirs in the same epoch, by the role `delta`, and is forgotten after it. It has no
    contents: it is left out when a view is computed from scratch.
    """

    target: Relation
    terms: tuple[Term, ...]
    initial: str
    initial_reads: frozenset[tuple[str, Role]]
    around: Around = JUST_TERMS
    around_reads: frozenset[tuple[str, Role]] = frozenset()
    extra: tuple[Term, ...] = ()
    stored: bool = True
    shared: Shared | None = None
    grown: str = ""
    """What may stand for `initial` where nothing was taken away from any input yet, because it costs less; else ''."""
    brief: Around = ()
    """Of a first step: what may stand in place of `around` to give the whole program's change at once; else nothing.

    It is worth trying for a few changed rows. It has one more column, `unless`, before the weight: where that is true in any row,
    all of the steps have to be run."""
    unless: str = ""

    def delta_sql(self, changed: frozenset[str], empty: Reads = NOTHING) -> str | None:
        """Give the SQL of the change when just these relations changed; None when it is empty for certain.

        Terms that begin with a part of a change that is known to be `empty` are left out.
        """
        live = [term.sql for term in self.terms if term.live(changed, empty)]
        parts = ["\nUNION ALL\n".join(live).join(self.around)] if live else []
        parts += [term.sql for term in self.extra if term.deltas <= changed]
        return "\nUNION ALL\n".join(parts) if parts else None

    @property
    def text(self) -> str:
        """All SQL of the step, for whoever looks for something in it."""
        return "\n".join([self.initial, *self.around, *(term.sql for term in (*self.terms, *self.extra))])

    def shared_sql(self, changed: frozenset[str]) -> str:
        """Give the SQL of the change over the change of the shared join, when also these relations changed."""
        assert self.shared is not None, self.target.name
        more = [term.sql for term in self.extra if term.deltas <= changed]
        return "\nUNION ALL\n".join([self.shared.term.sql.join(self.around), *more])

    def shared_reads(self, changed: frozenset[str]) -> frozenset[tuple[str, Role]]:
        """Say which inputs that SQL names."""
        assert self.shared is not None, self.target.name
        more = (read for term in self.extra if term.deltas <= changed for read in term.reads)
        return self.shared.term.reads | self.around_reads | frozenset(more)

    @property
    def uses(self) -> int:
        """How often the change of what it reads stands in the SQL of the change."""
        return len(self.around) - 1 if self.terms else 0

    @property
    def parts(self) -> Reads:
        """The parts of changes that its terms begin with: where one is empty, its terms are."""
        return _parts(self.terms)

    def delta_reads(self, changed: frozenset[str], empty: Reads = NOTHING) -> Reads:
        """Say which inputs that SQL names."""
        live = [term for term in self.terms if term.live(changed, empty)]
        extra = [term for term in self.extra if term.deltas <= changed]
        return frozenset(read for term in (*live, *extra) for read in term.reads) | (
            self.around_reads if live else frozenset()
        )


def _parts(terms: tuple[Term, ...]) -> Reads:
    return frozenset(read for term in terms for read in term.reads if read[1] in PARTS)


@dataclass(frozen=True)
class Operator:
    """One line of `explain`: what an operator of the view is maintained by, and why not better, with a stable code."""

    name: str
    strategy: Strategy
    reason: str = ""
    code: str = ""


@dataclass(frozen=True)
class Program:
    """Everything needed to keep one relation, a view or a stage: the last step computes it, the others help.

    `inputs` are the relations it reads: tables, views, and its stages. `stages` are the programs of all stages below it, each
    after those it reads. A stage is named by what it holds (`#` and a hash), so that equal stages of several views are one.
    """

    view: str
    columns: tuple[Column, ...]
    strategy: Strategy
    steps: tuple[Step, ...]
    inputs: tuple[str, ...]
    operators: tuple[Operator, ...]
    stages: tuple[Program, ...] = ()
    definite: str = ""
    """The view's query with its orders completed, where the user's text leaves open which of two rows comes first; else ''.

    The view is then equal to this text, which is one of the answers the user's text allows.
    """
    events: tuple[str, ...] = ()
    """The relations whose changes are an event view's rows, each read as `changes(...)`; such a view only grows."""

    @property
    def relation(self) -> Relation:
        """The relation that holds the view itself."""
        return self.steps[-1].target

    @property
    def incremental(self) -> bool:
        """Whether a change costs by the change."""
        return self.strategy in (Strategy.LINEAR, Strategy.KEYS)
