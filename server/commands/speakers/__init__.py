"""`earshot speakers`: people whose voices a running server knows."""
