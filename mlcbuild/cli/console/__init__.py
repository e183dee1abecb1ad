"""What a person sees of a build: the live display, the lines of its actions, and its summary."""
