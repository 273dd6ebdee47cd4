"""Finds the tables that a query reads, so that transforms can be put in order before Spark sees them. Pure.

Names are looked for where a table can stand: after FROM and JOIN and between the commas of a FROM. What is found too
much (the FROM of EXTRACT) names no step and does no harm; Spark itself resolves the query later.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

_TOKEN = re.compile(
    r"""(?P<skip>\s+|--[^\n]*|/\*.*?(?:\*/|\Z))
    |(?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    |`(?P<quoted>(?:[^`]|``)*)`
    |(?P<word>[^\W\d]\w*)
    |(?P<other>\d\w*|.)""",
    re.VERBOSE | re.DOTALL,
)
_ENDS_A_FROM = frozenset({
    "where", "group", "order", "having", "limit", "union", "except", "intersect", "minus", "window", "select",
    "distribute", "sort", "cluster", "offset", "qualify",
})  # fmt: skip
_BEGINS_A_QUERY = frozenset({"select", "with", "from", "values", "table", "("})


def tables_of(query: str) -> list[str]:
    """The names that stand where tables do, in their order, each once; those that WITH defines are left out."""
    tokens = list(_tokens(query))
    defined = set(_defined(tokens))
    return list(dict.fromkeys(name for name in _named(tokens) if name.lower() not in defined))


def query_problem(query: str) -> str | None:
    """What is wrong with a text that is no query: Spark would carry a command out as soon as it is resolved."""
    tokens = [text.lower() for _, text in _tokens(query)]
    if not tokens:
        return "there is no query in it"
    if tokens[0] not in _BEGINS_A_QUERY:
        return f"this is no query: it begins with {tokens[0].upper()!r}; a transform is a SELECT"
    if any(one == "insert" and two in ("into", "overwrite") for one, two in pairwise(tokens)):
        return "a transform does not insert rows: it is a SELECT, and a sink says where its rows go"
    if ";" in tokens[:-1]:
        return "there are several statements in it: a transform is one SELECT"
    return None


def _tokens(query: str) -> Iterator[tuple[str, str]]:
    """Words, quoted names and single characters; no comments, and strings as a mark only."""
    for match in _TOKEN.finditer(query):
        if match["word"] is not None:
            yield "word", match["word"]
        elif match["quoted"] is not None:
            yield "name", match["quoted"].replace("``", "`")
        elif match["text"] is not None:
            yield "text", ""
        elif match["other"] is not None:
            yield "other", match["other"]


def _defined(tokens: list[tuple[str, str]]) -> Iterator[str]:
    """`NAME AS (`, which only WITH has."""
    for (kind, name), (_, word), (_, bracket) in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if kind in ("word", "name") and word.lower() == "as" and bracket == "(":
            yield name.lower()


def _named(tokens: list[tuple[str, str]]) -> Iterator[str]:
    open_froms = [False]  # at each depth of brackets: whether a comma is followed by another table
    expects_table = False
    ended = [*tokens, ("other", ""), ("other", "")]
    for index, (kind, text) in enumerate(tokens):
        word = text.lower() if kind == "word" else ""
        if expects_table and kind in ("word", "name") and word not in ("lateral", "select"):
            following = ended[index + 1][1]
            if following == "(" and word in ("table", "stream"):  # FROM STREAM(orders)
                continue
            if following not in (".", "(") and ended[index - 1][1] != ".":
                yield text
            expects_table = False
        elif word in ("from", "join"):
            expects_table = open_froms[-1] = True
        elif word in _ENDS_A_FROM:
            expects_table = open_froms[-1] = False
        elif text == "(":
            open_froms.append(False)
        elif text == ")":
            open_froms = open_froms[:-1] or [False]
            expects_table = False
        elif text == "," and kind == "other":
            expects_table = open_froms[-1]
