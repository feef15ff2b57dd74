"""The names of the commands."""

COMMANDS = {
    "crawls": "harvest_command",
    "harvest": "harvest_command",
    "backfill": "harvest_command",
    "status": "status_command",
    "forget": "harvest_command",
    "check": "status_command",
    "doctor": "status_command",
    "plan": "query_command",
    "query": "query_command",
    "get": "get_command",
    "join": "join_command",
    "fetch": "fetch_command",
    "sample": "sample_command",
    "old-index": "query_command",
    "export": "export_command",
    "pull": "export_command",
    "verify": "verify_command",
    "serve": "serve_command",
    "mcp": "mcp_command",
    "sql": "sql_command",
    "demo": "serve_command",
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
