"""The `lowkiq` command."""


def main() -> None:
    """The command's entry point."""
    from lowkiq.cli.commands import cli  # noqa: PLC0415 (its subcommands use this package's tables)

    cli(prog_name="lowkiq")
