"""`saros up`: the whole service on one machine, by one command. It starts the others as child processes."""
