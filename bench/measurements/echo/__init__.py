"""Echo cancellation in simulated rooms: `python -m bench.measurements.echo`."""
