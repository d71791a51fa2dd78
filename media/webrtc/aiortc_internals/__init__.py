"""All code that uses private names of aiortc, aioice or pylibsrtp for packets."""
