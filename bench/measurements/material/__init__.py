"""Sound, models and results that several measurements make or keep."""
