"""The Llama family: Llama 2 and 3, Mistral, SmolLM, TinyLlama and whatever shares their `config.json`."""
