"""Home Assistant as the house: Earshot is its client, and passes on commands about the house.

The other direction, Home Assistant using Earshot's recognition and voices, is `devices/wyoming`.
"""
