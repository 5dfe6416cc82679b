"""The SQL dialect of a project: Spark 4's, in which a doubled quote inside a text is one quote."""

from __future__ import annotations

from sqlglot.dialects.spark import Spark


class Spark4(Spark):
    """Spark's dialect as sqlglot knows it, with the strings of Spark 4."""

    class Tokenizer(Spark.Tokenizer):
        """Reads `'it''s'` as one text; earlier Sparks read two."""

        STRING_ESCAPES = ["\\", "'", '"']  # noqa: RUF012 - the base class's own form


DIALECT = Spark4()
