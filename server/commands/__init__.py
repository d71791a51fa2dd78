"""The commands of `earshot`."""
