"""One file a framework: each lowers a network to that framework's native idiom. They share `runners.protocol` and nothing else."""
