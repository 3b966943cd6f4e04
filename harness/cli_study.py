"""The words of `dlbench study`: one command an experiment behind the analysis."""

import typer

study_app = typer.Typer(no_args_is_help=True, help="The experiments behind the analysis.")


@study_app.callback()
def study() -> None:
    """The experiments behind the analysis."""
