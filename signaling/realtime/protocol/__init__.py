"""Wire protocol of the Realtime API: client events, server events and audio formats."""
