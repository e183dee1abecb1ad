"""Pins are written into BUILD.toml files, and nothing else in them changes."""

from __future__ import annotations

import toml_rs
from hypothesis import given
from hypothesis import strategies as st

from mlcbuild.cli.fetch.pin_edit import with_pins

PIN = "sha256"
OLD, NEW, OTHER = "0" * 64, "1" * 64, "2" * 64


def test_an_old_pin_is_replaced_between_its_quotes() -> None:
    text = f'# files\n[[http_file]]\nname = "a" # the first\n  sha256   = \'{OLD}\'   # a pin\nurl = "u"\n'
    assert with_pins(text, {("http_file", 0): {PIN: NEW}}) == text.replace(f"'{OLD}'", f'"{NEW}"')


def test_a_missing_pin_becomes_the_last_of_the_tables_own_keys() -> None:
    text = """\
[[hf_repository]]
  name = "a"
  files = [
    "x",  # [[hf_repository]]
    # a comment
  ] # the end

# what follows is about b
[[hf_repository]]
name = "b"
select.files = { "//:p" = [] }
[hf_repository.select.revision]
default = "r"

[[model]]
name = "m\""""
    changed = with_pins(text, {("hf_repository", 0): {PIN: NEW}, ("hf_repository", 1): {PIN: OTHER}})
    added = [line for line in changed.splitlines() if line not in text.splitlines()]
    assert added == [f'  sha256 = "{NEW}"', f'sha256 = "{OTHER}"']
    assert changed.replace(added[0] + "\n", "").replace(added[1] + "\n", "") == text
    loaded = toml_rs.loads(changed)["hf_repository"]
    assert [table["sha256"] for table in loaded] == [NEW, OTHER]
    assert loaded[1]["select"]["revision"] == {"default": "r"}


def test_a_file_without_a_last_line_end_gets_one() -> None:
    assert with_pins('[[http_file]]\nname = "é"', {("http_file", 0): {PIN: NEW}}) == (
        f'[[http_file]]\nname = "é"\nsha256 = "{NEW}"\n'
    )


def test_line_ends_stay_as_they_are() -> None:
    text = '[[http_file]]\r\nname = "a"\r\n[[http_file]]\r\nname = "b"\r\n'
    changed = with_pins(text, {("http_file", 1): {PIN: NEW}})
    assert changed == text + f'sha256 = "{NEW}"\r\n'


def test_several_values_of_a_table_keep_their_order() -> None:
    text = '[[hf_repository]]\nname = "a"\n# the last\nfiles = [\n]\n\n[[model]]\nname = "m"\n'
    pins = {("hf_repository", 0): {"revision": "1" * 40, PIN: NEW}}
    added = f'revision = "{"1" * 40}"\nsha256 = "{NEW}"\n'
    changed = with_pins(text, pins)
    assert changed == text.replace("files = [\n]\n", f"files = [\n]\n{added}")
    moved = with_pins(changed, {("hf_repository", 0): {"revision": "2" * 40, PIN: OTHER}})
    assert moved == changed.replace("1" * 40 + '"\n', "2" * 40 + '"\n', 1).replace(NEW, OTHER)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["", "# c\n", "\n", "  \n"]),
            st.sampled_from(["", "  ", "\t"]),
            st.sampled_from(["", f'sha256 = "{OLD}"', f"sha256='{OLD}' # é"]),
            st.sampled_from(["", 'url = "u"', "files = [\n1, # x\n]", "s = '''\na\n'''", "[http_file.select]\nx = 1"]),
            st.booleans(),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_any_mixture_of_tables_keeps_all_but_its_pins(parts: list[tuple[str, str, str, str, bool]]) -> None:
    text = ""
    pins = {}
    for index, (before, indent, pin, other, wanted) in enumerate(parts):
        text += f'{before}[[http_file]]\n{indent}name = "n{index}"\n{indent}{pin}\n{other}\n'
        if wanted:
            pins["http_file", index] = {PIN: NEW}
    changed = with_pins(text, pins)
    expected = toml_rs.loads(text)
    for rule, index in pins:
        expected[rule][index]["sha256"] = NEW
    assert toml_rs.loads(changed) == expected
    without = [line for line in text.splitlines() if "sha256" not in line]
    assert [line for line in changed.splitlines() if "sha256" not in line] == without
