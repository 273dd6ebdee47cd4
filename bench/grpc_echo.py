"""The bare server beside which `bench.grpc` measures: grpcio.aio on uvloop, one call, which gives back what it gets.

It parses nothing, keeps nothing and knows no services: as little as a grpcio.aio server can do.
"""

from __future__ import annotations

import argparse
from typing import Any

import grpc
import grpc.aio
import uvloop

SERVICE, METHOD = "bench.Echo", "Echo"
PATH = f"/{SERVICE}/{METHOD}"


async def echo(request: bytes, _context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
    """Give it back."""
    return request


async def serve(port: int) -> None:
    """Until the process ends."""
    server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
    handlers: Any = {METHOD: grpc.unary_unary_rpc_method_handler(echo)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


def main() -> None:
    """Serve on the port that is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int)
    uvloop.run(serve(parser.parse_args().port))


if __name__ == "__main__":
    main()
