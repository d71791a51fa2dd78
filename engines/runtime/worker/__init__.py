"""The worker program that runs models, and the protocol to it."""
