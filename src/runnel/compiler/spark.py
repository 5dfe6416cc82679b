"""The SQL dialect of a project: Spark 4's, read so that it can be written back as the user wrote it."""

from __future__ import annotations

from sqlglot.dialects.spark import Spark
from sqlglot.parsers.spark import SparkParser

from runnel.compiler.functions import GENERATORS, GRAMMAR, READ_AGGREGATES


class Spark4(Spark):
    """Spark's dialect as sqlglot knows it, with the strings of Spark 4."""

    class Tokenizer(Spark.Tokenizer):
        """Reads `'it''s'` as one text; earlier Sparks read two."""

        STRING_ESCAPES = ["\\", "'", '"']  # noqa: RUF012 - the base class's own form


class Verbatim(Spark4):
    """Knows some aggregates, generators and what is half syntax by name; every other function is kept as it is written.

    sqlglot reads many functions as others that mean nearly the same (`to_char(a, '999')` as a cast), which is well for
    translating to another database and wrong for running on this one.
    """

    class Parser(SparkParser):
        """Leaves out what would be read as something else."""

        FUNCTIONS = {  # noqa: RUF012 - the base class's own form
            name: build
            for name, build in SparkParser.FUNCTIONS.items()
            if name.lower() in READ_AGGREGATES | GENERATORS | GRAMMAR
        }


DIALECT = Verbatim()
TRANSLATABLE = Spark4()
