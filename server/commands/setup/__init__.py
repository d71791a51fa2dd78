"""`earshot setup`: asks for the most important settings and writes them."""
