"""The page about SQL says what the compiler's support table says."""

from __future__ import annotations

from runnel.compiler.support import ABOUT, SUPPORT
from scripts.sql_reference import PAGE, page


def test_the_page_about_sql_is_made_from_the_support_table() -> None:
    assert PAGE.read_text() == page(), "run `make docs`"


def test_every_row_of_the_table_is_explained() -> None:
    assert list(ABOUT) == sorted(ABOUT, key=[row.feature for row in SUPPORT].index)
    assert set(ABOUT) == {row.feature for row in SUPPORT}


def test_codes_are_told_apart() -> None:
    """Two rows share a code only where they are one thing to the reader."""
    shared = {"RUNNEL-FULL-AGGREGATE", "RUNNEL-VIEW-REFUSED"}
    codes = [row.code for row in SUPPORT if row.code and row.code not in shared]
    assert len(codes) == len(set(codes))
