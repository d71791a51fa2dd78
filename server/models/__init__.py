"""Models folder and hubs, for `earshot models`: list, pull, convert, remove and check weights."""
