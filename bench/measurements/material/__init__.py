"""What measurements share: sound, models and results that they make or keep."""
