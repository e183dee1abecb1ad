"""How a byte-level tokenizer cuts text before it merges: what llama.cpp calls a pre-tokenizer.

A GGUF file names the rule in `tokenizer.ggml.pre`, whatever its architecture is; `CUTS` has the names that llama.cpp
knows (`llama_vocab::impl::load` in src/llama-vocab.cpp). The regular expressions are those that models have in their
own tokenizer.json, in Oniguruma's syntax. llama.cpp rewrites some of them for its own engine: `(?i:'s)` as `'[sS]`,
classes of upper and lower case as lookaheads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """`patterns` are regular expressions, one after another: each cuts the pieces that those before it left, at what it
    matches. Without one, and where `GPT2_PATTERN` is the last, pieces are cut by GPT-2's own rule.

    `digits`: each digit is cut off first; `ignore_merges`: a piece that is a token is not made by merging;
    `adds_bos`: a text begins with the token bos, unless the file says otherwise.
    """

    patterns: tuple[str, ...] = ()
    digits: bool = False
    ignore_merges: bool = False
    adds_bos: bool = False


GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LINES_AND_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS = _ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|NUMBERS| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _LINES_AND_SPACES
_UP_TO_THREE = _WORDS.replace("NUMBERS", r"\p{N}{1,3}")
_ONE = _WORDS.replace("NUMBERS", r"\p{N}")

# Words of o200k and tekken: one begins with capitals, or all of it is of capitals.
_CAPITALS, _SMALL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_CAPITALS}*{_SMALL}+ENDINGS|[^\r\n\p{{L}}\p{{N}}]?{_CAPITALS}+{_SMALL}*ENDINGS|NUMBERS"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_LINES_AND_SPACES}"
)
_O200K = _CASED.replace("ENDINGS", f"{_ENDINGS}?").replace("NUMBERS", r"\p{N}{1,3}")
_NO_HAN = r"&&[^\p{Han}]]"
_KIMI = r"[\p{Han}]+|" + _CASED.replace(_CAPITALS, _CAPITALS[:-1] + _NO_HAN).replace(
    _SMALL, _SMALL[:-1] + _NO_HAN
).replace("ENDINGS", f"{_ENDINGS}?").replace("NUMBERS", r"\p{N}{1,3}").replace(r"[\r\n/]*", r"[\r\n]*")
_TEKKEN = _CASED.replace("ENDINGS", "").replace("NUMBERS", r"\p{N}")

_DEEPSEEK_WORDS = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"""
    + _LINES_AND_SPACES
)
_CHINESE_AND_JAPANESE = "[一-龥぀-ゟ゠-ヿ]+"
_CHINESE_AND_KOREAN = "[一-龥ࠀ-一가-퟿]+"
# Letters that have a case, as DeepSeek lists them.
_CASED_LETTERS = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u1f7dᾀ-ᾴᾶ-ᾼ\u1fbeῂ-ῄῆ-ῌῐ-\u1fd3ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼ"
    "ℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)

GPT2 = Cut()
GPT2_DIGITS = Cut(digits=True)
UP_TO_THREE_DIGITS = Cut(patterns=(_UP_TO_THREE,), ignore_merges=True)  # Llama 3
ONE_DIGIT = Cut(patterns=(_ONE,))  # Qwen2
KIMI = Cut(patterns=(_KIMI,), ignore_merges=True)  # and Moonlight: Chinese characters are cut from all others
_CL100K = Cut(patterns=(_UP_TO_THREE,))
_DEEPSEEK3 = Cut(patterns=(r"\p{N}{1,3}", _CHINESE_AND_JAPANESE, _DEEPSEEK_WORDS))
_O200K_CUT = Cut(patterns=(_O200K,))
_BLOOM = r" ?[^(\s|.,!?…。，、।۔،)]+"
_BAILING = Cut(
    patterns=(
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    )
)

_BY_CUT: tuple[tuple[Cut, str], ...] = (
    (
        GPT2,
        "gpt-2 phi-2 mpt olmo jais trillion granite-docling exaone4 gigachat a.x-4.0 mellum modern-bert jina-es "
        "jina-de jina-v2-es jina-v2-de jina-v1-en jina-v2-code roberta-bpe",
    ),
    (GPT2_DIGITS, "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2"),
    (
        Cut(patterns=(_UP_TO_THREE,), ignore_merges=True, adds_bos=True),
        "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
    ),
    (_CL100K, "dbrx smaug-bpe glm4 chatglm-bpe"),
    (ONE_DIGIT, "qwen2 stablelm2 deepseek-r1-qwen kormo f2llmv2 megrez hunyuan solar-open grok-2"),
    (
        Cut(
            patterns=(
                _ENDINGS
                + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|"
                + _LINES_AND_SPACES,
            )
        ),
        "qwen35",
    ),
    (Cut(patterns=(_TEKKEN,), ignore_merges=True, adds_bos=True), "tekken"),
    (_O200K_CUT, "gpt-4o llama4 kanana2 talkie minimax-m2"),
    (Cut(patterns=(_O200K,), ignore_merges=True), "granite-embed-multi-97m"),
    (Cut(patterns=(r"\d{1,3}(?=(?:\d{3})*\b)", _O200K)), "tiny_aya cohere2moe"),
    (_DEEPSEEK3, "deepseek-v3 hunyuan-dense joyai-llm hy_v4"),
    (
        Cut(
            patterns=(
                r"[\r\n]",
                rf"\s?[{_CASED_LETTERS}]+",
                r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
                r"\s+$",
                _CHINESE_AND_KOREAN,
                r"\p{N}+",
            )
        ),
        "deepseek-llm",
    ),
    (Cut(patterns=(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CHINESE_AND_KOREAN, r"\p{N}")), "deepseek-coder"),
    (Cut(patterns=(r"\p{N}{1,3}", _WORDS.replace("NUMBERS", r"\p{N}+")), ignore_merges=True), "minicpm5"),
    (_BAILING, "bailingmoe bailingmoe2 llada-moe"),
    (
        Cut(patterns=(_ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|" + _LINES_AND_SPACES,)),
        "seed-coder",
    ),
    (
        Cut(
            patterns=(
                _ENDINGS
                + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]"
                + r"|\s+(?!\S)|\s+",
            )
        ),
        "exaone-moe",
    ),
    (Cut(patterns=(r"[\p{P}\$\+<=>\^~\|`]+", GPT2_PATTERN, "[0-9][0-9][0-9]")), "falcon"),
    (Cut(patterns=(_BLOOM,)), "bloom poro-chat gpt3-finnish"),
    (Cut(patterns=(_BLOOM, r"\p{N}")), "viking"),
    (Cut(patterns=(r"[\p{P}\$\+<=>\^~\|]+", GPT2_PATTERN, r"\p{N}+", "[0-9][0-9][0-9]")), "default"),
)
# `default` is also the rule of a file that names none.
CUTS: Mapping[str, Cut] = {name: cut for cut, names in _BY_CUT for name in names.split()}
