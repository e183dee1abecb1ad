"""Many prompts at a time: requests as JSON lines, computed together, results in the order of the requests."""
