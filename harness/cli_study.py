"""The words of `dlbench study`: one command an experiment behind the analysis."""

import typer

from harness.study_aggregation import aggregation
from harness.study_conv import conv
from harness.study_gemm import gemm
from harness.study_layers import layers
from harness.study_show import show

study_app = typer.Typer(no_args_is_help=True, help="The experiments behind the analysis.")
study_app.command()(gemm)
study_app.command()(conv)
study_app.command()(aggregation)
study_app.command()(layers)
study_app.command()(show)


@study_app.callback()
def study() -> None:
    """The experiments behind the analysis."""
