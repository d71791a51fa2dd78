"""Models behind Protocols: one file per engine, its library imported when it is created."""
