"""The models of this server: catalogue, registry, lifetimes and memory."""
