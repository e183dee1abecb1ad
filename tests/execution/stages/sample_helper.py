"""A module that a stage's key may not count."""

VALUE = "helped"
