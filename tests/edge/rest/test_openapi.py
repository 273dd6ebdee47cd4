"""The routes told to people and to tools: all of them, truly, and without a call to anybody else."""

from __future__ import annotations

import base64
import hashlib
import json
import re

from odradek.edge.rest import kraft, openapi
from odradek.edge.rest.openapi import describe
from odradek.edge.routing import NO_CONTENT, Route, RouteDoc, Router
from tests.edge.doors import on_uvloop
from tests.edge.rest.test_kraft import FakeQuorum
from tests.edge.web import open_door
from tests.sskafka.fakes import open_brokers


def small_router() -> Router:
    doc = RouteDoc(
        "Do <it>.",
        "Things",
        {
            201: ("Done & told.", {"id": 1, "tags": ["a"], "more": None}),
            404: ("No.", {"detail": "no"}),
            204: "Nothing.",
        },
        request={"name": "</textarea>", "count": 3, "is_small": True},
        optional=frozenset({"count"}),
    )
    return Router(
        Route("POST", "/things/{thing_id}", lambda _request: NO_CONTENT, doc),
        Route("GET", "/hidden", lambda _request: NO_CONTENT),
    )


def test_a_route_is_described_by_its_examples() -> None:
    described = describe(small_router())
    assert described["openapi"] == "3.1.0" and list(described["paths"]) == ["/things/{thing_id}"]
    operation = described["paths"]["/things/{thing_id}"]["post"]
    assert operation["parameters"] == [
        {"name": "thing_id", "in": "path", "required": True, "schema": {"type": "string"}}
    ]
    body = operation["requestBody"]["content"]["application/json"]
    assert body["schema"] == {
        "type": "object",
        "properties": {
            "name": {"type": "string"}, "count": {"type": ["integer", "string"]}, "is_small": {"type": "boolean"},
        },
        "required": ["name", "is_small"],
    }  # fmt: skip
    assert list(operation["responses"]) == ["201", "204", "404"]
    assert operation["responses"]["204"] == {"description": "Nothing."}
    schema = operation["responses"]["201"]["content"]["application/json"]["schema"]
    assert schema["properties"]["tags"] == {"type": "array", "items": {"type": "string"}}


@on_uvloop
async def test_every_route_of_the_seed_is_told() -> None:
    async with open_brokers(1) as brokers:
        (visit,) = brokers.visits.values()
        visit.server.router.add(*kraft.routes(FakeQuorum()))
        status, content = await brokers.ask(1, "GET", "/openapi.json")
        told = {(method, path) for path, methods in content["paths"].items() for method in methods}
        assert status == 200 and told >= {
            ("get", "/healthcheck"),
            ("post", "/admin/v1/topics"),
            ("get", "/admin/v1/topics"),
            ("delete", "/admin/v1/topics/{topic_name}"),
            ("post", "/data/v1/produce"),
            ("post", "/data/v1/consume"),
            ("post", "/kraft/v1/voteRequest"),
            ("post", "/kraft/v1/beginQuorumEpoch"),
            ("post", "/kraft/v1/fetchMetadata"),
            ("get", "/docs"),
        }
        _, _, page = await (await visit.connect()).get("/docs")
        for _, path in told:
            assert path in page.decode()


@on_uvloop
async def test_the_examples_are_what_the_door_takes_and_gives() -> None:
    async with open_brokers(5) as brokers:
        paths = (await brokers.ask(1, "GET", "/openapi.json"))[1]["paths"]
        for path, method, status in (
            ("/admin/v1/topics", "post", "201"),
            ("/data/v1/produce", "post", "204"),
            ("/data/v1/consume", "post", "200"),
            ("/admin/v1/topics", "get", "200"),
            ("/healthcheck", "get", "200"),
        ):
            operation = paths[path][method]
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("example")
            answer = await brokers.ask(1, method.upper(), path, body)
            content = operation["responses"][status].get("content", {}).get("application/json", {}).get("example")
            assert answer == (int(status), content)


@on_uvloop
async def test_the_page_is_whole_in_itself_and_runs_no_other_script() -> None:
    router = small_router()
    router.add(*openapi.routes(router))
    async with open_door(router) as door:
        status, headers, body = await (await door.connect()).get("/docs")
        page = body.decode()
        assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert (
            "https:" not in page and "http:" not in page and not re.search(r"<(link|script|img)[^>]* (src|href)", page)
        )
        (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"script-src 'sha256-{digest}'" in headers["content-security-policy"]
        assert "Do &lt;it&gt;." in page and "&lt;/textarea&gt;" in page, "what a route says cannot break the page"
        assert page.count("</textarea>") == 1
        assert "/hidden" not in page
        assert json.dumps({"detail": "no"}, indent=2).replace('"', "&quot;") in page
