"""`mlcbuild report`: one HTML file that shows a whole build."""
