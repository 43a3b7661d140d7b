"""How values of parameters are shown."""
