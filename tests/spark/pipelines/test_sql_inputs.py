"""The tables of a query, found without Spark."""

from __future__ import annotations

import pytest

from odradek.spark.pipelines.sql_inputs import query_problem, tables_of


@pytest.mark.parametrize(
    ("query", "tables"),
    [
        ("SELECT * FROM orders", ["orders"]),
        ("select a, b from Orders where b > 1", ["Orders"]),
        ("SELECT * FROM orders o JOIN payments p ON o.id = p.id", ["orders", "payments"]),
        ("SELECT * FROM orders o, payments AS p, `odd name` WHERE f(o.a, p.b) = 1", ["orders", "payments", "odd name"]),
        ("SELECT a, (SELECT max(x) FROM inner_one), b FROM outer_one", ["inner_one", "outer_one"]),
        ("SELECT * FROM (SELECT * FROM orders) o, payments", ["orders", "payments"]),
        ("SELECT * FROM (orders JOIN payments USING (id))", ["orders", "payments"]),
        (
            "SELECT * FROM orders LEFT OUTER JOIN lookup ON true GROUP BY window(at, '1 minute'), x",
            ["orders", "lookup"],
        ),
        ("SELECT * FROM a UNION ALL SELECT * FROM b", ["a", "b"]),
        ("WITH big AS (SELECT * FROM orders) SELECT * FROM big JOIN payments", ["orders", "payments"]),
        ("SELECT 'FROM nothing' FROM orders -- FROM comment\n/* JOIN\nnone */", ["orders"]),
        ("SELECT \"FROM x\", 'it''s FROM y', '\\' FROM z' FROM orders", ["orders"]),
        ("SELECT * FROM catalog.schema.orders", []),
        ("SELECT * FROM range(10)", []),
        ("SELECT * FROM STREAM(orders)", ["orders"]),
        ("SELECT * FROM orders, LATERAL explode(items)", ["orders"]),
        ("SELECT * FROM orders WHERE id IN (1, 2) AND x IN (SELECT id FROM good)", ["orders", "good"]),
        ("SELECT a FROM t1 INTERSECT SELECT a, b FROM t1", ["t1"]),
        ("VALUES (1)", []),
        ("", []),
    ],
)
def test_tables_are_found_where_tables_stand(query: str, tables: list[str]) -> None:
    assert tables_of(query) == tables


@pytest.mark.parametrize(
    "query", ["SELECT 1", " -- why\n(SELECT 1) UNION SELECT 2;", "with x as (select 1) select * from x", "VALUES (1)"]
)
def test_a_query_is_a_query(query: str) -> None:
    assert query_problem(query) is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("/* SELECT */ DROP TABLE orders", "this is no query: it begins with 'DROP'"),
        ("CREATE TABLE x AS SELECT 1", "this is no query: it begins with 'CREATE'"),
        ("WITH x AS (SELECT 1) INSERT INTO y SELECT * FROM x", "a transform does not insert rows"),
        ("SELECT 1; DROP TABLE x", "there are several statements in it"),
        ("-- nothing", "there is no query in it"),
    ],
)
def test_a_command_is_refused_before_spark_carries_it_out(text: str, problem: str) -> None:
    assert (query_problem(text) or "").startswith(problem)
