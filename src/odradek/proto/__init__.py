"""What gRPC messages look like: generated from `proto/` by `make proto`, and not to be changed by hand."""
