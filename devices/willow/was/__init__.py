"""Willow's application server (WAS): what its devices say and are told over `/ws`, and its REST."""
