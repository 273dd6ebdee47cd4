"""What the HTTP door is asked and what it answers: requests, pages, routes, and the table that finds a route.

Nothing here touches a socket. A path is given by its pieces, as in `/admin/v1/topics/{topic_name}`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn
from urllib.parse import parse_qsl, unquote

_QUERY_FIELDS_MAX = 100


class Page(NamedTuple):
    """What a route answers."""

    body: bytes
    content_type: str
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


class Stream(NamedTuple):
    """What a route answers piece by piece, for as long as it has any.

    The next piece is asked for when the client has taken those before it. The iterator is cancelled in its waiting when
    the client goes or the door closes, and closed in any case.
    """

    chunks: AsyncIterator[bytes]
    content_type: str
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


Answer = Page | Stream


def json_page(content: object, status: int = 200) -> Page:
    """An answer for programs."""
    return Page(json.dumps(content).encode() + b"\n", "application/json", status)


NO_CONTENT = Page(b"", "", 204)


class RequestError(Exception):
    """The request cannot be served; the detail goes to the client."""

    def __init__(self, status: int, detail: str, headers: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(status, detail)
        self.status = status
        self.detail = detail
        self.headers = headers

    def page(self) -> Page:
        """The problem as an answer."""
        return json_page({"detail": self.detail}, self.status)._replace(headers=self.headers)


def _never(_callback: Callable[[], None]) -> None:
    """A request that came over no connection loses none."""


@dataclass(slots=True)
class Request:
    """One request, whole."""

    method: str
    path: str
    parameters: dict[str, str] = field(default_factory=dict)  # the pieces of the path that a route names
    query: dict[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)  # by their names in lower case
    body: bytes = b""
    peer: str = ""
    # Have something called when the client's connection is lost, before or after the answer. What an earlier request
    # of the same connection asked for is forgotten: one that comes every second leaves one callback behind.
    on_close: Callable[[Callable[[], None]], None] = _never

    def json(self) -> dict[str, Any]:
        """The body as a JSON object; 400 if it is none."""
        content = self.any_json()
        if not isinstance(content, dict):
            raise RequestError(400, "the body is JSON, but not an object: send {...}")
        return content

    def any_json(self) -> Any:
        """The body as JSON; 400 if it is none."""
        try:
            return json.loads(self.body, parse_constant=_refuse_constant)
        except RecursionError:
            raise RequestError(400, "the body is nested too deep") from None
        except ValueError as error:
            raise RequestError(400, f"the body is not JSON: {error}") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


Handler = Callable[[Request], Answer | Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class RouteDoc:
    """What people read about a route."""

    summary: str
    tag: str
    responses: Mapping[int, str | tuple[str, Any]]  # by status: when it comes, and an example of the body
    request: Mapping[str, Any] | Sequence[Any] | None = None  # an example of the body
    optional: frozenset[str] = frozenset()  # fields of the body that may be left out
    query: Mapping[str, str] = field(default_factory=dict)  # what may stand behind the path, and what it means
    headers: Mapping[str, str] = field(default_factory=dict)  # the same for headers that are looked at


@dataclass(frozen=True, slots=True)
class Route:
    """What answers a method on a path; without a doc it is not shown to people."""

    method: str
    path: str
    handle: Handler
    doc: RouteDoc | None = None


class Match(NamedTuple):
    """A route and what stood in the places that its path leaves open."""

    route: Route
    parameters: dict[str, str]


class Router:
    """The routes of a door. More may be added while it is open.

    Of two paths that fit, the one with a fixed name where the other is open answers, whichever was added first.
    """

    def __init__(self, *routes: Route) -> None:
        self._fixed: dict[str, dict[str, Route]] = {}  # by path, then by method
        self._open: dict[str, _OpenPath] = {}  # paths that leave a piece open
        self._open_by_pieces: dict[int, list[_OpenPath]] = {}  # the same by how many pieces they have
        for route in routes:
            self.add(route)

    def add(self, *routes: Route) -> None:
        """Take routes in; each method on a path has one."""
        for route in routes:
            methods = self._open_methods(route.path) if "{" in route.path else self._fixed.setdefault(route.path, {})
            if route.method in methods:
                raise ValueError(f"{route.method} {route.path} is taken")
            methods[route.method] = route

    def _open_methods(self, path: str) -> dict[str, Route]:
        found = self._open.get(path)
        if found is None:
            found = self._open[path] = _OpenPath(path.split("/"), {})
            same = self._open_by_pieces.setdefault(len(found.pieces), [])
            same.append(found)
            same.sort(key=lambda path: [piece[:1] == "{" for piece in path.pieces])  # fixed names win
        return found.methods

    def __iter__(self) -> Iterator[Route]:
        """All routes."""
        for methods in (*self._fixed.values(), *(path.methods for path in self._open.values())):
            yield from methods.values()

    def paths(self) -> list[str]:
        """The paths that people are told of."""
        return sorted({route.path for route in self if route.doc is not None})

    def find(self, method: str, path: str) -> Match:
        """Find what answers; 404 or 405 if nothing does. HEAD is answered by what answers GET."""
        methods = self._fixed.get(path)
        parameters: dict[str, str] = {}
        if methods is None:
            methods, parameters = self._find_open(path)
        route = methods.get("GET" if method == "HEAD" else method)
        if route is None:
            allowed = ", ".join(sorted({*methods, *(["HEAD"] if "GET" in methods else [])}))
            raise RequestError(405, f"only {allowed} is answered here", (("allow", allowed),))
        return Match(route, parameters)

    def _find_open(self, path: str) -> tuple[dict[str, Route], dict[str, str]]:
        pieces = path.split("/")
        for candidate in self._open_by_pieces.get(len(pieces), ()):
            parameters = _parameters(candidate.pieces, pieces)
            if parameters is not None:
                return candidate.methods, parameters
        raise RequestError(404, f"there is nothing at this path; try {', '.join(self.paths())}")


class _OpenPath(NamedTuple):
    """A path that leaves pieces open, and what answers on it."""

    pieces: list[str]
    methods: dict[str, Route]


def _parameters(wanted_pieces: list[str], pieces: list[str]) -> dict[str, str] | None:
    """What a path has where a template is open; None if it does not fit."""
    found: dict[str, str] = {}
    for wanted, piece in zip(wanted_pieces, pieces, strict=True):
        if wanted[:1] == "{" and piece:
            found[wanted[1:-1]] = unquote(piece)
        elif wanted != piece:
            return None
    return found


def split_target(target: bytes) -> tuple[str, dict[str, str]]:
    """Split the target of a request into its path, as it came, and its query."""
    path, mark, query = target.decode("ascii", "replace").partition("?")
    if not mark:
        return path, {}
    try:
        return path, dict(parse_qsl(query, keep_blank_values=True, max_num_fields=_QUERY_FIELDS_MAX))
    except ValueError:
        raise RequestError(400, f"the query has more than {_QUERY_FIELDS_MAX} fields") from None
