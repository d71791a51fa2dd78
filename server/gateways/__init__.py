"""Several gateway processes behind one address (ADR 104)."""
