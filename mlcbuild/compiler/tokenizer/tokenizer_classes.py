"""What classes of tokenizers do that no file says.

A vocabulary does not say everything: how a class of transformers, or of a model's own code, cuts text or numbers its
tokens is in its code. So only classes that are known here are converted, and any other is refused by its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mlcbuild.compiler.tokenizer.cuts import GPT2, KIMI, ONE_DIGIT, UP_TO_THREE_DIGITS, Cut
from mlcbuild.compiler.tokenizer.settings import TokenizerSettings
from mlcbuild.errors import StageError

_ANY = ("", "PreTrainedTokenizer", "TokenizersBackend")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerClass:
    """What the code of a class says, where the settings do not: whether bos and eos come around a text, and the space
    before a text also after special tokens; tokens before every text; how it cuts text, and whether it normalizes it to
    NFC; special tokens that it makes up after the vocabulary. Those of `later` follow in later models with a class of
    the same name: they are left out if the model's own code, in the file `code` beside the vocabulary, does not write
    them. `tokens` are how many the vocabulary has to have for special tokens to have their numbers, 0 for any."""

    adds_bos: bool = False
    adds_eos: bool = False
    first: tuple[str, ...] = ()
    prefix_after_special: bool = True
    cut: Cut = GPT2
    is_nfc: bool = False
    generated: tuple[str, ...] = ()
    later: tuple[str, ...] = ()
    code: str = ""
    tokens: int = 0

    def special_tokens(self, vocabulary: Path, size: int) -> tuple[str, ...]:
        """Those after a vocabulary of `size` tokens. Raises StageError for one of another size than `tokens`."""
        if self.tokens and size != self.tokens:
            raise StageError(
                f"{vocabulary} has {size} tokens, and the class numbers special tokens after {self.tokens}",
                advice=("fetch it again: it may be truncated",),
            )
        code = vocabulary.parent / self.code
        written = code.read_text(encoding="utf-8", errors="replace") if self.later and code.is_file() else None
        return self.generated + tuple(text for text in self.later if written is None or text in written)


_BOS = TokenizerClass(adds_bos=True)
PIECES: Mapping[str, TokenizerClass] = {
    **dict.fromkeys((*_ANY, "Baichuan", "InternLM", "InternLM2", "InternLM3", "Orion", "Yi", "Gemma"), _BOS),
    "PreTrainedTokenizer": TokenizerClass(),
    "TokenizersBackend": TokenizerClass(),
    **dict.fromkeys(("Llama", "CodeLlama"), TokenizerClass(adds_bos=True, prefix_after_special=False)),
    "T5": TokenizerClass(adds_eos=True),
    "ChatGLM": TokenizerClass(  # of ChatGLM 2, and with `later` of ChatGLM 3
        first=("[gMASK]", "sop"),
        generated=("[MASK]", "[gMASK]", "[sMASK]", "sop", "eop"),
        later=("<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
        code="tokenization_chatglm.py",
    ),
}
TIKTOKEN: Mapping[str, TokenizerClass] = {
    **dict.fromkeys((*_ANY, "Llama"), TokenizerClass(cut=UP_TO_THREE_DIGITS)),
    "ChatGLM4": TokenizerClass(cut=UP_TO_THREE_DIGITS, first=("[gMASK]", "<sop>")),
    "QWen": TokenizerClass(
        cut=Cut(patterns=ONE_DIGIT.patterns, ignore_merges=True),
        is_nfc=True,
        generated=("<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<|extra_{number}|>" for number in range(205))),
    ),
    "TikToken": TokenizerClass(cut=KIMI),  # Moonlight, Kimi
    "Arcade100k": TokenizerClass(  # StableLM 2
        cut=Cut(patterns=ONE_DIGIT.patterns, ignore_merges=True),
        is_nfc=True,
        tokens=100256,
        generated=(
            *("<|reserved_token_100256|>", "<|endoftext|>"),
            *(f"<|fim_{part}|>" for part in ("prefix", "middle", "suffix", "pad")),
            *("<gh_stars>", "<filename>", "<issue_start>", "<issue_comment>", "<issue_closed>", "<jupyter_start>"),
            *("<jupyter_text>", "<jupyter_code>", "<jupyter_output>", "<empty_output>", "<commit_before>"),
            *("<commit_msg>", "<commit_after>", "<reponame>", "<|endofprompt|>", "<|im_start|>", "<|im_end|>"),
            *("<|pause|>", *(f"<|reg{number}|>" for number in range(8)), "<|extra0|>"),
        ),
    ),
}
TEKKEN = TokenizerClass(adds_bos=True)
MERGES: Mapping[str, TokenizerClass] = {
    **dict.fromkeys((*_ANY, "GPT2", "CodeGen"), TokenizerClass()),
    **dict.fromkeys(("Roberta", "Bart"), TokenizerClass(adds_bos=True, adds_eos=True)),
    "Qwen2": TokenizerClass(cut=ONE_DIGIT, is_nfc=True),
}
WORD_PIECES: Mapping[str, TokenizerClass] = dict.fromkeys((*_ANY, "Bert", "DistilBert", "Electra"), TokenizerClass())


def known_class(classes: Mapping[str, TokenizerClass], settings: TokenizerSettings, path: Path) -> TokenizerClass:
    name = settings.class_name.removesuffix("Tokenizer")
    known = classes.get(settings.class_name, classes.get(name))
    if known is None:
        names = ", ".join(f"{name}Tokenizer" for name in classes if name not in _ANY)
        raise StageError(
            f"{path.parent} holds no tokenizer.json, and {path.name} is not converted for the class "
            f"{settings.class_name}: how it treats text is in its code",
            advice=(f"known: {names}", "transformers' AutoTokenizer saves tokenizer.json of it"),
        )
    return known
