"""The MLX runner."""
