"""`earshot service`: runs the server under systemd."""
