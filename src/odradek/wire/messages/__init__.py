"""The messages of Kafka's protocol, one module an API; each holds a `Request` and a `Response`."""
