"""Simulation of many callers, in virtual time, with the product's own scheduler."""
