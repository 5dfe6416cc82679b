"""The SQL dialect of a project: Spark 4's, read so that it can be written back as the user wrote it."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.generators.spark import SparkGenerator
from sqlglot.parsers.spark import SparkParser

from runnel.compiler.functions import GENERATORS, GRAMMAR, READ_AGGREGATES


class Spark4(Spark):
    """Spark's dialect as sqlglot knows it, with the strings of Spark 4."""

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

    class Generator(SparkGenerator):
        """Writes names with the quotes they were read with."""

        def lateral_sql(self, expression: exp.Lateral) -> str:
            """Quote the alias of a LATERAL VIEW, which sqlglot writes bare."""
            alias = expression.args.get("alias")
            if not expression.args.get("view") or alias is None or not isinstance(alias.this, exp.Identifier):
                return super().lateral_sql(expression)
            spelled = expression.copy()
            spelled.args["alias"].set("this", exp.to_identifier(self.sql(alias, "this"), quoted=False))
            return super().lateral_sql(spelled)


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


DIALECT = Verbatim()
TRANSLATABLE = Spark4()
