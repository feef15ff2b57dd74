"""The names of the commands."""

COMMANDS = {
    "crawls": "harvest",
    "harvest": "harvest",
    "backfill": "harvest",
    "status": "status",
    "forget": "harvest",
    "check": "status",
    "doctor": "status",
    "plan": "query",
    "query": "query",
    "get": "get",
    "join": "join",
    "fetch": "fetch",
    "sample": "sample",
    "old-index": "query",
    "export": "export",
    "pull": "export",
    "verify": "verify",
    "serve": "serve",
    "mcp": "mcp",
    "sql": "sql",
    "demo": "serve",
    "completion": "completion",
}
"""The module of each command."""

SYNONYMS = {
    "download": "fetch",
    **dict.fromkeys(["cat", "open", "show", "wget", "curl"], "get"),
    **dict.fromkeys(["search", "find", "lookup"], "query"),
    **dict.fromkeys(["delete", "remove", "rm"], "forget"),
    "list": "crawls",
}
"""Names of other tools for the same, to suggest ours."""
