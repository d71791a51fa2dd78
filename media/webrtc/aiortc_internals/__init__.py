"""Everything that uses private names of aiortc, aioice or pylibsrtp."""
