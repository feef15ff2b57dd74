"""The names of the commands."""

COMMANDS = {
    "crawls": "harvest_commands",
    "harvest": "harvest_commands",
    "backfill": "harvest_commands",
    "status": "status_commands",
    "forget": "harvest_commands",
    "check": "status_commands",
    "doctor": "status_commands",
    "plan": "query_commands",
    "query": "query_commands",
    "get": "get_command",
    "join": "join_command",
    "fetch": "fetch_command",
    "sample": "sample_command",
    "old-index": "query_commands",
    "export": "export_commands",
    "pull": "export_commands",
    "verify": "verify_command",
    "serve": "serve_commands",
    "mcp": "mcp_command",
    "sql": "sql_command",
    "demo": "serve_commands",
    "completion": "completion_command",
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
