"""After publishing: make groups of the classic protocol rebalance that do not follow by themselves."""
