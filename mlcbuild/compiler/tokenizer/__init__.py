"""Tokenizers and chat templates: rebuilt from a GGUF's vocabulary, and described as a serving engine wants
them."""
