"""GPT-Live: OpenAI's protocol in which the server owns the turns, with the sessions of Realtime."""
