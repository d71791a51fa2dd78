"""`earshot cluster`: a cluster of machines that run models with Ray."""
