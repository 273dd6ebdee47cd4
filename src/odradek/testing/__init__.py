"""A whole broker inside a test: `with odradek.testing.broker() as b: ... b.bootstrap_servers`.

It runs in a thread of this process, on free ports, in a directory that goes with it. `async_broker` is the same for
coroutines; the pytest plugin's fixture is `odradek_broker`.
"""

from odradek.testing.embedded import EmbeddedBroker, async_broker, broker

__all__ = ["EmbeddedBroker", "async_broker", "broker"]
