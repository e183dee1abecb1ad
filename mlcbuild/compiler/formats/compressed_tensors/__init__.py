"""Checkpoints of compressed-tensors, which vLLM, SGLang and transformers load."""
