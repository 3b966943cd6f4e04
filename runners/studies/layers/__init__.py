"""Workers of the layer study, one file a framework."""
