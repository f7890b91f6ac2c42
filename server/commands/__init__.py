"""REQUESTS TO WORK: a class a command, a file a family."""
