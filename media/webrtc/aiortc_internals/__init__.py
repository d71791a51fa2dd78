"""All code that uses private names of aiortc and aioice."""
