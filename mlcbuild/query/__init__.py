"""Questions about targets: a query's text becomes an expression, the expression a list of labels.

`expression.parse_query`, `evaluate.evaluate`, and `output` for the forms in which results are shown.
"""
