"""The `lowkiq` command."""


def main() -> None:
    """The command's entry point. Signals are held back, since importing takes a while."""
    from lowkiq.process.held_signals import hold_back  # noqa: PLC0415 (before anything else)

    hold_back()
    from lowkiq.cli.commands import cli  # noqa: PLC0415 (its subcommands use this package's tables)

    cli(prog_name="lowkiq")
