"""The bare FastAPI route beside which `bench.rest` measures: it reads nothing, keeps nothing, and answers 204."""

from __future__ import annotations

from fastapi import FastAPI, Response

app = FastAPI()


@app.post("/publish", status_code=204)
async def publish() -> Response:
    """Answer."""
    return Response(status_code=204)
