"""`earshot engines`: lists and installs engines."""
