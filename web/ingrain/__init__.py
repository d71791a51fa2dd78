"""Ingrain's HTTP API, for clients of an Ingrain server. It has two ports: inference and models."""
