"""Both gRPC services from outside: beside other clients, under bad input, and on three brokers."""
