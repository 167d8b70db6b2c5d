"""Records of the hint topic with bytes changed, for whoever decodes them."""
