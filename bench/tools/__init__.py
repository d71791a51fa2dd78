"""Statistics, clips and virtual time for several measurements."""
