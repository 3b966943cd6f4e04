"""Two sides of one framework: what a comparison plans, and how a search follows releases."""
