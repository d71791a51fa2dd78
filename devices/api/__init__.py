"""HTTP API of the devices, for the page, the command line and any client with the server's key."""
