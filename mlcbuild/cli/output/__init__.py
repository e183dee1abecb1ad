"""How anything is printed: text, colour, JSON, progress of long commands, errors; and files written whole."""
