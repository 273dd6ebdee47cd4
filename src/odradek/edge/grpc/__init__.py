"""The gRPC door: a server in the broker's loop, and the services of MyKafka and Eeylops over it.

Imported only by a broker whose door is on: grpc takes longer to import than the rest of the broker.
"""
