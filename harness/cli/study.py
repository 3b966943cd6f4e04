"""The words of `dlbench study`: one command an experiment behind the analysis."""

import typer

from harness.cli.show import show
from harness.studies.aggregation import aggregation
from harness.studies.conv import conv
from harness.studies.gemm import gemm
from harness.studies.layers import layers

study_app = typer.Typer(no_args_is_help=True, help="The experiments behind the analysis.")
study_app.command()(gemm)
study_app.command()(conv)
study_app.command()(aggregation)
study_app.command()(layers)
study_app.command()(show)


@study_app.callback()
def study() -> None:
    """The experiments behind the analysis."""
