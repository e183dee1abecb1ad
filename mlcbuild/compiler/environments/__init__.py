"""Python environments that are made of pinned wheels: unpacking them, and running programs in them."""
