"""An MCP server of 2025 without any library: its replies are written by hand.

`server_2025.py [deaf | late | silent | huge | fragile]`: `deaf` never answers; `late` reports a
change right after it listed its tools; `silent` changes them without a report; `huge` has too many
tools and a schema that is too large; `fragile` exits on unknown methods, as the official package
did in early 2025.
"""

import json
import sys
from typing import Any

KIND = sys.argv[1] if len(sys.argv) > 1 else ""
ANY = {"type": "object"}
asked = 0


def send(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def tools() -> list[dict[str, Any]]:
    if KIND == "huge":
        large = {"type": "object", "description": "x" * 20_000}
        return [
            {"name": "large", "inputSchema": large},
            *({"name": f"tool {number}", "inputSchema": ANY} for number in range(500)),
        ]
    if KIND in ("late", "silent") and asked > 1:
        return [{"name": "new", "inputSchema": ANY}]
    return [{"name": "old", "description": "d" * 5000, "inputSchema": ANY}]


def answer(request: dict[str, Any]) -> None:
    global asked
    number, method = request.get("id"), request.get("method")
    if number is None or KIND == "deaf":
        return
    if method == "initialize":
        result = {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "old", "version": "1"},
        }
        send(id=number, result=result)
    elif method == "tools/list":
        asked += 1
        send(id=number, result={"tools": tools()})
        if KIND == "late" and asked == 1:
            send(method="notifications/tools/list_changed")
    elif method == "tools/call":
        send(id=number, result={"content": [{"type": "text", "text": "as ever"}]})
    elif KIND == "fragile":
        sys.exit(f"no method {method}")
    else:
        send(id=number, error={"code": -32601, "message": f"no method {method}"})


for line in sys.stdin:
    answer(json.loads(line))
