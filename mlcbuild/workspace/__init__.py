"""From `BUILD.toml` files to typed targets: labels, patterns, matrices, configurations.

What other rooms use, module by module: `loader` (`load`, `LoadedWorkspace`), `settings` (`find_root`, `package_of`,
`load_settings`), `label`, `pattern`, `schema` (what a rule declares), `target`, `configuration`, `graph`.
"""
