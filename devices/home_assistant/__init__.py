"""Home Assistant as the house: Earshot is its client, and hands it what is said about the house.

The other direction, Home Assistant using our ears and voices, is `devices/wyoming`.
"""
