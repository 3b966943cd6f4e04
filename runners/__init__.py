"""One package a framework: each lowers a network to that framework's native idiom."""
