"""Models on a cluster of machines with Ray Serve. Only `deployment.py` imports Ray."""
