"""The routes for people and for tools that write clients: `/openapi.json` and, made of it, the page at `/docs`.

Types are read off the examples that the routes give. The page is whole in itself: it asks nobody but this broker.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

from odradek import __version__
from odradek.edge.routing import Page, Request, Route, RouteDoc, Router, json_page

_TITLE = "Odradek"
_ERROR_SCHEMA = {"type": "object", "properties": {"detail": {"type": "string"}}, "required": ["detail"]}
_ROUTES_MARK, _VERSION_MARK = "<!-- routes -->", "<!-- version -->"


def routes(router: Router) -> list[Route]:
    """Make the two routes that tell of all routes, themselves too."""
    shell = files("odradek.edge.rest").joinpath("docs.html").read_text(encoding="utf-8")
    headers = (("content-security-policy", _policy(shell)),)

    def openapi(_request: Request) -> Page:
        return json_page(describe(router))

    def docs(_request: Request) -> Page:
        return Page(render(shell, describe(router)).encode(), "text/html; charset=utf-8", headers=headers)

    return [
        Route("GET", "/openapi.json", openapi, RouteDoc("These routes in OpenAPI's format.", "Broker", {200: "They."})),
        Route("GET", "/docs", docs, RouteDoc("These routes as a page.", "Broker", {200: "It."})),
    ]


def describe(router: Router) -> dict[str, Any]:
    """All routes that have a doc, in OpenAPI 3.1."""
    paths: dict[str, dict[str, Any]] = {}
    for route in sorted(router, key=lambda route: route.path):
        if route.doc is not None:
            paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, route.doc)
    return {"openapi": "3.1.0", "info": {"title": _TITLE, "version": __version__}, "paths": paths}


def _operation(route: Route, doc: RouteDoc) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": doc.summary,
        "tags": [doc.tag],
        "responses": {str(status): _response(status, told) for status, told in sorted(doc.responses.items())},
    }
    names = [piece[1:-1] for piece in route.path.split("/") if piece[:1] == "{"]
    parameters = [_parameter(name, "path") for name in names]
    parameters += [_parameter(name, "query", told) for name, told in doc.query.items()]
    parameters += [_parameter(name, "header", told) for name, told in doc.headers.items()]
    if parameters:
        operation["parameters"] = parameters
    if doc.request is not None:
        schema = _schema(doc.request)
        if isinstance(doc.request, Mapping):
            schema["required"] = [name for name in doc.request if name not in doc.optional]
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema, "example": doc.request}},
        }
    return operation


def _parameter(name: str, place: str, told: str | None = None) -> dict[str, Any]:
    parameter = {"name": name, "in": place, "required": place == "path", "schema": {"type": "string"}}
    return parameter if told is None else {**parameter, "description": told}


def _response(status: int, told: str | tuple[str, Any]) -> dict[str, Any]:
    if isinstance(told, str):
        return {"description": told}
    text, example = told
    schema = _ERROR_SCHEMA if status >= 400 else _schema(example)
    return {"description": text, "content": {"application/json": {"schema": schema, "example": example}}}


def _schema(example: object) -> dict[str, Any]:
    """The schema that an example fits."""
    if isinstance(example, Mapping):
        return {"type": "object", "properties": {name: _schema(value) for name, value in example.items()}}
    if isinstance(example, (list, tuple)):
        return {"type": "array", "items": _schema(example[0]) if example else {}}
    if isinstance(example, bool):
        return {"type": "boolean"}
    if isinstance(example, int):
        return {"type": ["integer", "string"]}  # a number may come as a string everywhere
    return {"type": "string"} if isinstance(example, str) else {}


def render(shell: str, described: Mapping[str, Any]) -> str:
    """The page for people: a shell with the routes in it."""
    by_tag: dict[str, list[str]] = {}
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            by_tag.setdefault(operation["tags"][0], []).append("".join(_section(path, method.upper(), operation)))
    sections = "".join(f"<h2>{html.escape(tag)}</h2>{''.join(found)}" for tag, found in by_tag.items())
    return shell.replace(_ROUTES_MARK, sections).replace(_VERSION_MARK, html.escape(__version__))


def _section(path: str, method: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f'<details><summary><b class="{method}">{method}</b> <code>{html.escape(path)}</code> '
    yield f"{html.escape(operation['summary'])}</summary>"
    yield f'<form data-method="{method}" data-path="{html.escape(path)}">'
    for parameter in operation.get("parameters", ()):
        name, place = html.escape(parameter["name"]), parameter["in"]
        told, required = html.escape(parameter.get("description", "")), " required" if parameter["required"] else ""
        yield f'<label>{name} <input name="{name}" data-in="{place}"{required}> {told}</label>'
    if "requestBody" in operation:
        example = operation["requestBody"]["content"]["application/json"]["example"]
        yield f'<label>Body<textarea rows="{len(example) + 2}">{_pretty(example)}</textarea></label>'
    yield "<button>Send</button><output></output></form><table>"
    for status, response in operation["responses"].items():
        content = response.get("content", {}).get("application/json")
        example = "" if content is None else f"<pre>{_pretty(content['example'])}</pre>"
        yield f"<tr><th>{status}</th><td>{html.escape(response['description'])}{example}</td></tr>"
    yield "</table></details>"


def _pretty(example: object) -> str:
    return html.escape(json.dumps(example, indent=2))


def _policy(shell: str) -> str:
    """What a browser is told, so that it runs the page's own script and no other."""
    return (
        "default-src 'none'; connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; "
        f"script-src 'sha256-{_hash(shell, 'script')}'; style-src 'sha256-{_hash(shell, 'style')}'"
    )


def _hash(shell: str, tag: str) -> str:
    content = shell.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
    return base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
