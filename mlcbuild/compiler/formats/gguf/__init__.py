"""GGUF files of llama.cpp: what they say, and their tensors."""
