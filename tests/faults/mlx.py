"""MLX's runner with one fault each."""

from mlx import nn

from runners.mlx import layers
from runners.mlx.runner import Runner
from tests.faults import planted


class Traditional(layers.Rotary):
    """Pairs of neighbours, MLX's other form."""

    def __init__(self, a, shape):
        super().__init__(a, shape)
        self.rope = nn.RoPE(shape[-1] // a["heads"], traditional=True, base=a["base"])


Pairs = planted(Runner, layers, LAYERS={**layers.LAYERS, "rotary": Traditional})
