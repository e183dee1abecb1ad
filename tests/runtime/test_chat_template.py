"""A chat template gives the text that transformers' `apply_chat_template` gives.

The templates are written for these tests, each in the style of a published family's: its tokens, its order of blocks,
and the Jinja that it uses.
"""

from __future__ import annotations

import contextlib
import re
from datetime import datetime
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from mlcbuild.errors import StageError
from mlcbuild.runtime.chat_template import render, special_tokens
from tests.parity_packages import parity_package

transformers = parity_package("transformers")

Messages = list[dict[str, Any]]

LLAMA_3_1 = """{{- bos_token }}
{%- if custom_tools is defined %}{%- set tools = custom_tools %}{%- endif %}
{%- if not tools_in_user_message is defined %}{%- set tools_in_user_message = true %}{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if builtin_tools is defined or tools is not none %}{{- "Environment: ipython\\n" }}{%- endif %}
{{- "Today Date: " + date_string + "\\n\\n" }}
{%- if tools is not none and not tools_in_user_message %}
    {%- for t in tools %}{{- t | tojson(indent=4) }}{{- "\\n\\n" }}{%- endfor %}
{%- endif %}
{{- system_message }}{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim }}
        {{- '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if message.tool_calls | length != 1 %}
            {{- raise_exception("only one call at once") }}
        {%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '{"name": "' + call.name + '", "parameters": ' }}{{- call.arguments | tojson }}{{- "}<|eom_id|>" }}
    {%- else %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}
"""
QWEN_2_5 = """{%- if tools %}
    {{- '<|im_start|>system\\n# Tools\\n<tools>' }}
    {%- for tool in tools %}{{- "\\n" }}{{- tool | tojson }}{%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>system\\nBe helpful.<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == "user" or (message.role == "system" and not loop.first)
           or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}{%- set tool_call = tool_call.function %}{%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' }}{{- tool_call.name }}{{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}{{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' }}{{- message.content }}{{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""
MISTRAL = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}{%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace(index=0) %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or message.tool_calls is defined) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("after the system message, roles must alternate") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] " + (tools | tojson) + "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined %}
        {{- "[TOOL_CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function | tojson %}
            {{- out[:-1] }}
            {{- '}, ' if not loop.last else '}]' + eos_token }}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"] | trim + eos_token }}
    {%- elif message["role"] == "tool" %}
        {{- '[TOOL_RESULTS] {"content": ' + message.content | string + "}[/TOOL_RESULTS]" }}
    {%- else %}
        {{- raise_exception("not a role: " + message["role"]) }}
    {%- endif %}
{%- endfor %}
"""
HERMES = """{%- macro json_to_python_type(spec) %}
    {%- set names = {"string": "str", "number": "float", "integer": "int", "boolean": "bool"} %}
    {%- if names[spec.type] is defined %}{{- names[spec.type] }}
    {%- elif spec.type == "array" %}{{- "list[" + json_to_python_type(spec.items) + "]" }}
    {%- else %}{{- "Any" }}{%- endif %}
{%- endmacro %}
{{- bos_token }}{{- '<|im_start|>system\\n<tools> ' }}
{%- if tools is iterable and tools | length > 0 %}
    {%- for tool in tools %}
        {%- if tool.function is defined %}{%- set tool = tool.function %}{%- endif %}
        {{- '{"type": "function", "function": ' }}{{- '{"name": "' + tool.name + '", ' }}
        {%- for name, field in tool.parameters.properties | items %}
            {{- name + ": " + json_to_python_type(field) }}{%- if not loop.last %}{{- ", " }}{%- endif %}
        {%- endfor %}
        {{- '}' }}
    {%- endfor %}
{%- endif %}
{{- ' </tools>' }}{{- "{\\"properties\\": {\\"name\\": {\\"title\\": \\"Name\\"}}}" | safe }}{{- '<|im_end|>\\n' }}
{%- for message in messages %}
    {%- if message.role == "tool" %}
        {%- if loop.previtem and loop.previtem.role != "tool" %}{{- '<|im_start|>tool\\n' }}{%- endif %}
        {{- '<tool_response>\\n' }}{{- message.content }}
        {%- if not loop.last %}{{- '\\n</tool_response>\\n' }}{%- else %}{{- '\\n</tool_response>' }}{%- endif %}
        {%- if not loop.last and loop.nextitem.role != "tool" %}{{- '<|im_end|>' }}
        {%- elif loop.last %}{{- '<|im_end|>' }}{%- endif %}
    {%- elif message.tool_calls %}
        {%- for tool_call in message.tool_calls %}
            {{- '\\n<tool_call>\\n{"arguments": ' }}{{- tool_call.function.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""
COMMAND_R = """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}
{% set system_message = messages[0]['content'] %}{% elif false == true %}{% set loop_messages = messages %}
{% set system_message = 'You are Command.' %}{% else %}{% set loop_messages = messages %}
{% set system_message = false %}{% endif %}
{% if system_message != false %}
{{ '<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>' + system_message + '<|END_OF_TURN_TOKEN|>' }}{% endif %}
{% for message in loop_messages %}
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}
{% set content = message['content'] %}
{% if message['role'] == 'user' %}
{{ '<|START_OF_TURN_TOKEN|><|USER_TOKEN|>' + content.strip() + '<|END_OF_TURN_TOKEN|>' }}
{% elif message['role'] == 'assistant' %}
{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' + content.strip() + '<|END_OF_TURN_TOKEN|>' }}{% endif %}
{% endfor %}
{% if documents %}{% for document in documents %}{{ document['title'] }}{% endfor %}{% endif %}
{% if add_generation_prompt %}{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{% endif %}"""
GEMMA = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}{{ raise_exception('no system role') }}{%- endif -%}
{%- for message in messages -%}
    {%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}
    {{ '<start_of_turn>' + role + '\n' + (message['content'] | trim) + '<end_of_turn>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<start_of_turn>model\n' }}{%- endif -%}
"""
SMOLLM_3 = """{%- set reasoning = 'off' if messages[0].content.endswith('/no_think') else 'on' -%}
{{- '<|im_start|>system\\nKnowledge Cutoff: June 2025\\nToday: ' ~ strftime_now('%Y') ~ '\\n' ~ reasoning -}}
{{- '<|im_end|>\\n' -}}
{%- for message in messages -%}
    {%- if message.role == 'assistant' -%}
        {% generation %}{{- '<|im_start|>assistant\\n' + message.content.lstrip('\\n') + '<|im_end|>\\n' }}
        {% endgeneration %}
    {%- elif message.role == 'tool' -%}{%- continue -%}
    {%- else -%}{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""
PHI = """{% for message in messages %}{% if message['role'] == 'system' and message['content'] %}
{{ '<|system|>\n' + message['content'] + '<|end|>\n' }}{% else %}
{{ '<|' + message['role'] + '|>\n' + message['content'] + '<|end|>\n' }}{% endif %}{% endfor %}
{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}"""
DEEPSEEK = """{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}
{% set ns = namespace(is_first=false, is_tool=false, system_prompt='', is_first_sp=true) %}
{%- for message in messages %}{%- if message['role'] == 'system' %}
{%- if ns.is_first_sp %}{% set ns.system_prompt = ns.system_prompt + message['content'] %}
{% set ns.is_first_sp = false %}{%- else %}{% set ns.system_prompt = ns.system_prompt + '\\n\\n' + message['content'] %}
{%- endif %}{%- endif %}{%- endfor %}{{ bos_token }}{{ ns.system_prompt }}
{%- for message in messages %}
{%- if message['role'] == 'user' %}{{ '<｜User｜>' + message['content'] }}{%- endif %}
{%- if message['role'] == 'assistant' and message['content'] is not none %}{% set content = message['content'] %}
{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}
{{ '<｜Assistant｜>' + content + '<｜end▁of▁sentence｜>' }}{%- endif %}{%- endfor -%}
{% if add_generation_prompt %}{{ '<｜Assistant｜><think>\\n' }}{% endif %}"""
PUBLISHED = {
    "llama-3.1": LLAMA_3_1,
    "qwen-2.5": QWEN_2_5,
    "mistral": MISTRAL,
    "hermes": HERMES,
    "command-r": COMMAND_R,
    "gemma": GEMMA,
    "smollm-3": SMOLLM_3,
    "phi": PHI,
    "deepseek": DEEPSEEK,
}
USER = {"role": "user", "content": " What is 1 < 2 & 'x'? "}
ANSWER = {"role": "assistant", "content": "<think>no</think>\nYes, it is."}
AGAIN = {"role": "user", "content": "日本? /no_think"}
SYSTEM = {"role": "system", "content": "Be <brief> & kind."}
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"function": {"name": "look", "arguments": {"q": "<a href='x'>&é", "n": [1, 2.5, None, True]}}}],
}
RESULT = {"role": "tool", "content": '{"found": "<b>"}'}
DIALOGUES: list[Messages] = [
    [USER],
    [USER, ANSWER, AGAIN],
    [SYSTEM, USER],
    [SYSTEM, USER, ANSWER, AGAIN],
    [USER, CALL, RESULT],
    [SYSTEM, USER, CALL, RESULT, ANSWER, AGAIN],
]
TOKENS: Any = {"bos_token": "<s>", "eos_token": "</s>"}


def applied(template: str, messages: Messages, *, prompt: bool = True, **tokens: str) -> str | None:
    """The text that transformers makes; None if the template fails there."""
    vocabulary = Tokenizer(models.WordLevel({"<s>": 0, "</s>": 1, "<unk>": 2}, unk_token="<unk>"))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=vocabulary, **tokens)
    try:
        text: str = tokenizer.apply_chat_template(
            messages, chat_template=template, tokenize=False, add_generation_prompt=prompt
        )
    except Exception:  # of Jinja, and whatever the template's code raises
        return None
    return text


def rendered(template: str, messages: Messages, *, prompt: bool = True, **tokens: str) -> str | None:
    with contextlib.suppress(StageError):
        return render(template, messages, tokens=tokens, add_generation_prompt=prompt, clock=datetime.now)
    return None


@pytest.mark.parametrize("prompt", [True, False])
@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_template_gives_the_text_of_transformers(name: str, prompt: bool) -> None:
    texts = [applied(PUBLISHED[name], messages, prompt=prompt, **TOKENS) for messages in DIALOGUES]
    assert texts[0]
    assert [rendered(PUBLISHED[name], messages, prompt=prompt, **TOKENS) for messages in DIALOGUES] == texts


@pytest.mark.parametrize(
    "template",
    [
        "{{ tools is not none }} {{ documents is none }} {{ tools is defined }}",
        "{{ messages | tojson }}",
        "{{ messages | tojson(indent=2, sort_keys=true, ensure_ascii=true) }}",
        "{{ messages[0] | tojson(separators=(',', ':')) }}",
        "{{ bos_token is defined }} {{ unk_token is defined }} {{ pad_token }}",
        "{{ unk_token + 'x' }}",
        "{% generation %}{% set seen = 1 %}{{ messages[0].content }}{% endgeneration %}{{ seen is defined }}",
        "{%- generation -%} a {%- endgeneration -%} b",
        "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
        "{% set ns = namespace(_hidden=1) %}{{ ns._hidden }}",
        "{% set ns = namespace(self=1) %}{{ ns.self }}",
        "{{ dict(a=1) | tojson }} {{ dict.fromkeys([1, 2], 'x') }}",
        "{{ dict.__class__ }}",
        "{{ dict.mro() }}",
        "{{ messages.append(1) }}",
        "{{ ().__class__.__base__.__subclasses__() }}",
        "{{ '%s' | format(1) }} {{ range(3) | list }} {{ cycler('a').next() }} {{ lipsum is defined }}",
        "{% for m in messages %}{% if loop.index0 %}{% break %}{% endif %}{{ m.content }}{% endfor %}",
        "{{ raise_exception('no') }}",
        "{{ strftime_now('%Y-%m') }} {{ strftime_now(format='%Y') }}",
        "{% for i in range(1000000) %}{% endfor %}",
        "{{ 1 // 0 }}",
        "{{ messages[7].content.x }}",
        "{{ messages[0].content.nothing }}",
        "line\n  {% if true %}\n  indented\n  {% endif %}\nend\n",
        "",
    ],
)
def test_every_name_of_the_environment_is_that_of_transformers(template: str) -> None:
    expected = applied(template, [USER, ANSWER], **TOKENS)
    assert rendered(template, [USER, ANSWER], **TOKENS) == expected


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_pieces = st.sampled_from(
    [
        "{{ messages | tojson }}",
        "{{ messages[0].content }}",
        "{% generation %}{{ messages[0].extra | tojson(indent=1) }}{% endgeneration %}",
        "{% for m in messages %}{{ m.role }}{{ m.content | trim }}\n{% endfor %}",
        "{% if tools is not none %}tools{% else %}\n  none\n{% endif %}",
        "{%- set x = messages[0].extra -%}",
        "{{ x }}",
        "{{ eos_token ~ sep_token }}",
        " \n",
        "{{ messages[0].extra is mapping }}{{ messages[0].extra is string }}",
        "{{ messages[0].extra | length }}",
        "{{ (messages | last).content.split('a') | join('|') }}",
    ]
)


@settings(max_examples=150, deadline=None)
@given(
    parts=st.lists(_pieces, min_size=1, max_size=5),
    content=st.text(max_size=20),
    extra=_json.filter(lambda x: x is not None),
)
@example(parts=["{{ messages | tojson }}"], content="</s>'&\u2028", extra={"<": ">"})
def test_any_message_gives_the_text_of_transformers(parts: list[str], content: str, extra: object) -> None:
    messages = [{"role": "user", "content": content, "extra": extra}]
    template = "".join(parts)
    assert rendered(template, messages, **TOKENS) == applied(template, messages, **TOKENS)


def test_a_template_without_a_clock_has_no_date() -> None:
    assert render("{{ strftime_now is defined }}", [USER]) == "False"
    day = datetime(2024, 7, 26)
    assert render("{{ strftime_now('%d %b %Y') }}", [USER], clock=lambda: day) == "26 Jul 2024"


def test_special_tokens_are_those_that_transformers_names() -> None:
    from mlcbuild.runtime.chat_template import SPECIAL_TOKENS

    named = transformers.PreTrainedTokenizerFast.SPECIAL_TOKENS_ATTRIBUTES
    assert sorted(SPECIAL_TOKENS) == sorted(name for name in named if not name.startswith(("additional", "extra")))
    config = {"bos_token": {"content": "<s>"}, "eos_token": "</s>", "pad_token": None, "cls_token": 3}
    assert special_tokens(config) == {"bos_token": "<s>", "eos_token": "</s>"}


@pytest.mark.parametrize("template", ["{{ 1 // 0 }}", "{% for i in range(10**9) %}{% endfor %}", "{{ 'a' * 10**15 }}"])
def test_whatever_a_template_raises_is_told_as_its_error(template: str) -> None:
    with pytest.raises(StageError, match=re.compile(r"the chat template cannot be rendered: \w")):
        render(template, [USER])
