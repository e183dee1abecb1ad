"""Where a setting's value comes from: option, variable, the user's `settings.toml`, the workspace, in this order."""
