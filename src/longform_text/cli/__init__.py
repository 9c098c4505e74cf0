"""The command line: one file a command, each parsing its arguments, making one call, printing the result."""
