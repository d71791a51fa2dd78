"""The worker program that runs models, and the protocol between it and the gateway."""
