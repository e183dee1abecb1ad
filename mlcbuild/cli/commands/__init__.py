"""One module a command. Each is imported at every start, so what it needs is imported when it runs."""
