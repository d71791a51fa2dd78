"""Willow: Earshot as inference server (`wis`) and application server (`was`) of Willow devices."""
