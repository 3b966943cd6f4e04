"""Stand-ins for what the studies time, right and with one fault each."""
