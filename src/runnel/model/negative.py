"""Writes the negative of a number exactly: Spark's minus sign rounds a decimal to 34 digits, and everything it is subtracted from to 38."""

from __future__ import annotations

from runnel.model.types import Decimal, Type

MOST_DIGITS_NEGATED = 34
"""Digits of a decimal that Spark's minus sign keeps."""


def negative(sql: str, type_: Type) -> str:
    """Write the negative of an expression of this type; of a wide decimal by its text.

    >>> from runnel.model.types import parse
    >>> negative("`a`", parse("int")), negative("`a`", parse("decimal(38,2)"))
    ('-`a`', "CAST(replace(concat('-', CAST(`a` AS STRING)), '--', '') AS decimal(38,2))")
    """
    if not isinstance(type_, Decimal) or type_.precision <= MOST_DIGITS_NEGATED:
        return f"-{sql}"
    return f"CAST(replace(concat('-', CAST({sql} AS STRING)), '--', '') AS {type_})"
