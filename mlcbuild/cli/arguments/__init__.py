"""The command line itself: options that commands share, reading them, help, completion, and its errors."""
