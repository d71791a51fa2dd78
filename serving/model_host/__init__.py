"""One process that runs the models of several gateways, and the gateways' side of it (ADR 110)."""
