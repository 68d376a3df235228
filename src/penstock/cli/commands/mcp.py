"""The `mcp` command."""

from penstock.errors import MissingExtra


def mcp_command() -> None:
    """Answer agents over the Model Context Protocol (stdio).

    Offers fit, predict, simulate, plan, preflight, audit and catalog as read-only tools. Arguments have the types of
    the flags; answers are the documents of --json. Needs the extra: `pip install 'penstock[mcp]'`.

    Examples:

    - `penstock mcp  # started by an agent, which writes to its stdin`
    """
    try:
        from penstock.cli.mcp_server import serve
    except ModuleNotFoundError as error:
        raise MissingExtra("`penstock mcp` needs an extra: pip install 'penstock[mcp]'") from error
    serve()
