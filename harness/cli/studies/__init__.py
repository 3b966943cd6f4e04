"""The commands of `dlbench study`: one operation, links between devices, whole pipelines."""
