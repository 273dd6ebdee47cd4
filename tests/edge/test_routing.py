"""Routes are found by path and method; bodies are JSON objects or refused."""

from __future__ import annotations

import pytest

from odradek.edge.routing import NO_CONTENT, Page, Request, RequestError, Route, RouteDoc, Router, split_target


def answer(_request: Request) -> Page:
    return NO_CONTENT


DOC = RouteDoc("", "", {})
ROUTER = Router(
    Route("GET", "/topics", answer, DOC),
    Route("POST", "/topics", answer, DOC),
    Route("DELETE", "/topics/{topic_name}", answer, DOC),
    Route("GET", "/topics/{topic_name}/{number}", answer),
    Route("PUT", "/topics/special", answer),
)


@pytest.mark.parametrize(
    ("method", "path", "found", "parameters"),
    [
        ("GET", "/topics", "/topics", {}),
        ("HEAD", "/topics", "/topics", {}),
        ("POST", "/topics", "/topics", {}),
        ("DELETE", "/topics/x", "/topics/{topic_name}", {"topic_name": "x"}),
        ("DELETE", "/topics/a%2Fb%20%C3%A9", "/topics/{topic_name}", {"topic_name": "a/b é"}),
        ("DELETE", "/topics/{topic_name}", "/topics/{topic_name}", {"topic_name": "{topic_name}"}),
        ("GET", "/topics/x/7", "/topics/{topic_name}/{number}", {"topic_name": "x", "number": "7"}),
        ("PUT", "/topics/special", "/topics/special", {}),
    ],
)
def test_a_route_is_found_by_its_path(method: str, path: str, found: str, parameters: dict[str, str]) -> None:
    match = ROUTER.find(method, path)
    assert (match.route.path, match.parameters) == (found, parameters)


@pytest.mark.parametrize("is_reversed", [False, True])
def test_a_fixed_name_is_found_before_an_open_one_whichever_was_added_first(is_reversed: bool) -> None:
    paths = [
        "/{channel}",
        "/{channel}/{timestamp}",
        "/topic",
        "/topic/{name}",
        "/{channel}/latest",
        "/topic/{name}/log",
    ]
    router = Router(*(Route("GET", path, answer) for path in (paths[::-1] if is_reversed else paths)))
    wanted = {
        "/topic": "/topic",
        "/orders": "/{channel}",
        "/topic/7": "/topic/{name}",
        "/topic/latest": "/topic/{name}",
        "/orders/latest": "/{channel}/latest",
        "/orders/7": "/{channel}/{timestamp}",
        "/topic/a/log": "/topic/{name}/log",
    }
    for path, found in wanted.items():
        assert router.find("GET", path).route.path == found, path
    assert sorted(route.path for route in router) == sorted(paths)


@pytest.mark.parametrize("path", ["", "/", "/topic", "/topics/", "/topics//", "/topics/a/b/c", "topics", "//topics"])
def test_other_paths_are_told_what_there_is(path: str) -> None:
    with pytest.raises(RequestError) as caught:
        ROUTER.find("GET", path)
    assert caught.value.status == 404
    assert "/topics, /topics/{topic_name}" in caught.value.detail
    assert "{number}" not in caught.value.detail, "what has no doc is not told"


def test_other_methods_are_told_which_there_are() -> None:
    with pytest.raises(RequestError) as caught:
        ROUTER.find("PUT", "/topics")
    assert caught.value.status == 405
    assert caught.value.headers == (("allow", "GET, HEAD, POST"),)


def test_a_method_on_a_path_has_one_route() -> None:
    with pytest.raises(ValueError, match="GET /topics is taken"):
        Router(*ROUTER, Route("GET", "/topics", answer))


def test_a_target_is_a_path_and_a_query() -> None:
    assert split_target(b"/a%20b?x=1&y=&z=%C3%A9+e&x=2") == ("/a%20b", {"x": "2", "y": "", "z": "é e"})
    assert split_target(b"/a") == ("/a", {})
    with pytest.raises(RequestError, match="fields"):
        split_target(b"/a?" + b"&".join(b"x=1" for _ in range(101)))


@pytest.mark.parametrize(
    "body",
    [
        b"", b"x", b"[1]", b'"x"', b"1", b"null", b"\xff", b'{"a": NaN}', b'{"a": -Infinity}', b'{"a": 1}{}',
        b"[" * 100_000, b'{"a":' * 100_000, b'{"a": ' + b"9" * 5_000 + b"}",
    ],
    ids=lambda body: body[:20].decode("latin-1"),
)  # fmt: skip
def test_a_body_that_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(RequestError) as caught:
        Request("POST", "/", body=body).json()
    assert caught.value.status == 400 and caught.value.detail.startswith("the body is ")


def test_a_body_is_read_as_json() -> None:
    assert Request("POST", "/", body='{"a": ["é", 1.5, null]}'.encode()).json() == {"a": ["é", 1.5, None]}
