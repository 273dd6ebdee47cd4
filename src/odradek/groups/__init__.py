"""Consumer groups: pure state machines for both protocols, and the coordinator that drives them."""
