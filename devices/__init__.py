"""Doors for speakers and Home Assistant: xiaozhi boards, Willow, Wyoming; the device registry
behind them; and Home Assistant as the house that Earshot controls."""
