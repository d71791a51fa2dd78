"""Statistics, clips and clocks that several measurements use."""
