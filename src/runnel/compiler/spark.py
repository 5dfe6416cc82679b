"""The SQL dialect of a project: Spark 4's, read so that it can be written back as the user wrote it."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.generators.spark import SparkGenerator
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import TokenType

from runnel.compiler.functions import GENERATORS, GRAMMAR, READ_AGGREGATES

if TYPE_CHECKING:
    from sqlglot.dialects.dialect import DialectType
    from sqlglot.tokenizer_core import Token


_VALUE_FOLLOWS = frozenset(
    {TokenType.SELECT, TokenType.COMMA, TokenType.L_PAREN, TokenType.WHERE, TokenType.HAVING, TokenType.ON}
    | {TokenType.AND, TokenType.OR, TokenType.NOT, TokenType.THEN, TokenType.ELSE, TokenType.BETWEEN}
    | {TokenType.EQ, TokenType.NEQ, TokenType.LT, TokenType.LTE, TokenType.GT, TokenType.GTE, TokenType.NULLSAFE_EQ}
    | {TokenType.PLUS, TokenType.DASH, TokenType.STAR, TokenType.SLASH, TokenType.MOD, TokenType.DPIPE}
)
"""What a value follows and nothing else: WHEN after one of these is no part of a CASE."""


class UnsignedShift(exp.Expression, exp.Binary):
    """`a >>> b`, which sqlglot does not know."""


class Spark4(Spark):
    """Spark's dialect as sqlglot knows it, with the strings of Spark 4."""

    def tokenize(self, sql: str, dialect: DialectType = None) -> list[Token]:
        """Split a text for the parser, which takes the functions `window(...)` and `when(...)` for beginnings of clauses."""
        found = super().tokenize(sql, dialect)
        for at, (word, opens) in enumerate(pairwise(found)):
            if opens.token_type is not TokenType.L_PAREN:
                continue
            if word.token_type is TokenType.WINDOW or (
                word.token_type is TokenType.WHEN and at and found[at - 1].token_type in _VALUE_FOLLOWS
            ):
                word.token_type = TokenType.VAR
        return found

    class Tokenizer(Spark.Tokenizer):
        """Reads `'it''s'` as one text; earlier Sparks read two."""

        STRING_ESCAPES = ["\\", "'", '"']  # noqa: RUF012 - the base class's own form

    class Parser(SparkParser):
        """Reads what sqlglot reads in another way than Spark."""

        def _parse_interval(
            self,
            require_interval: bool = True,  # noqa: FBT001, FBT002 - the base class's own form
            parse_function_unit: bool = True,  # noqa: FBT001, FBT002
        ) -> exp.Add | exp.Interval | None:
            """Keep the units of `INTERVAL 1 YEAR 2 MONTHS` together: all of them are taken away in `a - INTERVAL ...`."""
            found = super()._parse_interval(require_interval, parse_function_unit)
            return exp.Paren(this=found) if isinstance(found, exp.Add) else found  # type: ignore[return-value]

        def _parse_bitwise(self) -> exp.Expr | None:
            """Read `>>>` too. Operators of this level are written back in the order they are read, without brackets."""
            this = super()._parse_bitwise()
            if this is None or not self._at_unsigned_shift():
                return this
            self._advance(3)
            return self.expression(UnsignedShift(this=this, expression=self._parse_bitwise()))

        def _match_pair(self, token_type_a: TokenType, token_type_b: TokenType, advance: bool = True) -> bool:  # noqa: FBT001, FBT002
            """Do not take the first two signs of `>>>` for a shift of its own."""
            if token_type_a is TokenType.GT and token_type_b is TokenType.GT and self._at_unsigned_shift():
                return False
            return super()._match_pair(token_type_a, token_type_b, advance)

        def _at_unsigned_shift(self) -> bool:
            found = self._tokens[self._index : self._index + 3]
            return [token.token_type for token in found] == [TokenType.GT] * 3 and all(
                one.end + 1 == other.start for one, other in pairwise(found)
            )

    class Generator(SparkGenerator):
        """Writes names with the quotes they were read with."""

        TRANSFORMS = {  # noqa: RUF012 - the base class's own form
            **SparkGenerator.TRANSFORMS,
            # All operators of this level are read from left to right whatever binds tighter, so none may get brackets.
            exp.BitwiseLeftShift: lambda self, expression: self.binary(expression, "<<"),
            exp.BitwiseRightShift: lambda self, expression: self.binary(expression, ">>"),
            UnsignedShift: lambda self, expression: self.binary(expression, ">>>"),
            exp.ArgMax: lambda self, e: self.func("MAX_BY", e.this, e.expression, e.args.get("count")),
            exp.ArgMin: lambda self, e: self.func("MIN_BY", e.this, e.expression, e.args.get("count")),
        }
        # A WITH inside another query stays there: its names may be those of tables outside.
        EXPRESSIONS_WITHOUT_NESTED_CTES: ClassVar[set[type[exp.Expr]]] = set()
        # Sparks before 4.1 had no TIME.
        TYPE_MAPPING = {**SparkGenerator.TYPE_MAPPING, exp.DType.TIME: "TIME"}  # noqa: RUF012 - the base class's own form

        def lateral_sql(self, expression: exp.Lateral) -> str:
            """Quote the alias of a LATERAL VIEW, which sqlglot writes bare."""
            alias = expression.args.get("alias")
            if not expression.args.get("view") or alias is None or not isinstance(alias.this, exp.Identifier):
                return super().lateral_sql(expression)
            spelled = expression.copy()
            spelled.args["alias"].set("this", exp.to_identifier(self.sql(alias, "this"), quoted=False))
            return super().lateral_sql(spelled)


_CLAUSE_CALLS = frozenset({"CAST", "TRY_CAST", "EXTRACT", "OVERLAY", "POSITION", "SUBSTR", "SUBSTRING", "TRIM"})
"""Functions that have words between their arguments."""
_HINTS = frozenset(
    {
        "BROADCAST",
        "BROADCASTJOIN",
        "MAPJOIN",
        "MERGE",
        "MERGEJOIN",
        "SHUFFLEMERGE",
        "SHUFFLE_HASH",
        "SHUFFLE_REPLICATE_NL",
    }
)


class Verbatim(Spark4):
    """Knows some aggregates, generators and what is half syntax by name; every other function is kept as it is written.

    sqlglot reads many functions as others that mean nearly the same (`to_char(a, '999')` as a cast), which is well for
    translating to another database and wrong for running on this one.
    """

    class Parser(Spark4.Parser):
        """Leaves out what would be read as something else."""

        FUNCTIONS = {  # noqa: RUF012 - the base class's own form
            name: build
            for name, build in SparkParser.FUNCTIONS.items()
            if name.lower() in READ_AGGREGATES | GENERATORS | GRAMMAR
        }
        # Of others, arguments would be left out (how often a value counts in a percentile) or added (a comma to listagg).
        FUNCTION_PARSERS = {  # noqa: RUF012 - the base class's own form
            name: parse
            for name, parse in SparkParser.FUNCTION_PARSERS.items()
            if name in _CLAUSE_CALLS | _HINTS | {"AND", "OR", "MAX_BY", "MIN_BY"}
        }


DIALECT = Verbatim()
TRANSLATABLE = Spark4()
