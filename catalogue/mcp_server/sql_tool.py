"""The tool ``sql_metadata``: SQL over the metadata database, in a process that can read nothing else."""

from catalogue.mcp_server.answers import SqlAnswer
from catalogue.mcp_server.arguments import SqlArguments
from catalogue.mcp_server.calls import Call

_MAX_CHARACTERS = 40_000


def sql_metadata(arguments: SqlArguments, call: Call) -> SqlAnswer:
    """Run one statement that reads."""
    from catalogue.metadata_db.isolated_sql import run_isolated  # noqa: PLC0415 - imports DuckDB

    call.catalogue.update()
    found = run_isolated(
        call.session.database_path,
        arguments.sql,
        rows=arguments.limit,
        characters=_MAX_CHARACTERS,
        started=call.on_abort,
    )
    notes = [*call.notes, *(["long texts are cut"] if found.cut else [])]
    return SqlAnswer(
        columns=found.columns,
        types=found.types,
        rows=found.rows,
        more=found.more,
        notes=notes,
        cost=call.cost,
    )
