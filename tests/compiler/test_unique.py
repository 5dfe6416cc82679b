"""The columns that are unique in a view by its text; none where there is the least doubt."""

from __future__ import annotations

import pytest

import runnel
from runnel.compiler import unique_columns
from runnel.engine.duckdb import DuckDbEngine
from runnel.pipeline.deliver import known_in

CASES = [
    ("SELECT g, max(x) AS m FROM t GROUP BY g", ("g",)),
    ("SELECT x AS y, g, min(id) AS m FROM t GROUP BY t.g, x", ("g", "y")),
    ("SELECT g, sum(x) AS s FROM t GROUP BY g HAVING sum(x) > 3", ("g",)),
    ("SELECT g, sum(x) / count(*) AS a FROM t GROUP BY 1 ORDER BY a LIMIT 3", ("g",)),
    ("SELECT upper(g) AS u, max(x) AS m FROM t GROUP BY upper(g)", ("u",)),
    ("SELECT upper(g) AS u, max(x) AS m FROM t GROUP BY u", ("u",)),
    ("SELECT upper(g) AS g, max(x) AS m FROM t GROUP BY g", ()),
    ("SELECT max(x) AS m FROM t GROUP BY g", ()),
    ("SELECT x AS g, max(id) AS m FROM t GROUP BY x, r.x", ()),
    ("SELECT g, x, max(id) AS m FROM t GROUP BY ROLLUP (g, x)", ()),
    ("SELECT g, x, max(id) AS m FROM t GROUP BY g, x WITH CUBE", ()),
    ("SELECT g, max(x) AS m, explode(collect_list(x)) AS e FROM t GROUP BY g", ()),
    ("SELECT DISTINCT g, x + 1 AS y FROM t", ("g", "y")),
    ("SELECT id AS key, upper(g) AS g FROM t WHERE x > 1", ("key",)),
    ("SELECT * FROM t", ("id",)),
    ("SELECT q.x, q.id FROM t AS q", ("id",)),
    ("SELECT r.id, g FROM t", ()),
    ("SELECT id + 1 AS id FROM t", ()),
    ("SELECT a.id, b.x FROM t AS a JOIN t AS b ON a.x = b.x", ()),
    ("SELECT id, e FROM t LATERAL VIEW explode(array(1, 2)) AS e", ()),
    ("SELECT id FROM t UNION ALL SELECT id FROM t", ()),
    ("WITH c AS (SELECT g, x FROM t) SELECT g, max(x) AS m FROM c GROUP BY g", ("g",)),
    ("SELECT k FROM (SELECT id AS k FROM t) AS q", ()),
    ("SELECT g, m FROM below WHERE m > 1", ("g",)),
    ("SELECT new.id, old.x AS was FROM CHANGES(t)", ()),
]


@pytest.mark.parametrize(("sql", "key"), CASES)
def test_unique_columns_are_known_by_the_text(sql: str, key: tuple[str, ...]) -> None:
    with runnel.memory(engine=DuckDbEngine()) as project:
        project.create_table("t", "id INT, g STRING, x INT, r STRUCT<id: INT, x: INT>", key=["id"])
        project.create_view("below", "SELECT g, max(x) AS m FROM t GROUP BY g")
        project.create_view("v", sql)
        known = known_in(project.runtime.lake.snapshot())
        assert unique_columns(known.relations["v"], known.relations, known.texts) == key
