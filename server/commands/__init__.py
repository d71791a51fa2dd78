"""Implements the commands of `earshot`, except `talk` and `bench`."""
