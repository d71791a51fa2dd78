"""The Realtime wire protocol: client events, server events, audio formats."""
