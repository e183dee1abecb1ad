"""One file a rule: how the attributes of a target become actions.

A rule is a `Rule` value at the top level of its file: a schema, and a function that is given a `RuleContext`. The
built-in rules and those of a workspace come through the same door, `mlcbuild.rules.registry`.
"""
