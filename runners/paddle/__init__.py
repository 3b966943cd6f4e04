"""The PaddlePaddle runner."""
