"""What programs read of a build: the build report, the profile, and the event log."""
