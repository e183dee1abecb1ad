"""What a stage may be given as a plug-in."""

FIRST = "first"
SECOND = ["second"]
