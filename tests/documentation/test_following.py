"""The harness finds what it is for: commands that fail, output that differs, files that are not as shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documentation.comparing import difference
from tests.documentation.following import PageDiffersError, follow
from tests.documentation.page import PageError


def page(folder: Path, text: str) -> Path:
    path = folder / "page.md"
    path.write_text(text.replace("'''", "```"), encoding="utf-8")
    return path


WHOLE = """\
# A page

'''toml
# settings/a.toml
x = 1
'''

<!-- append to: settings/a.toml -->
'''toml
y = 2
'''

<!-- run: cp settings/a.toml b.toml -->
'''sh
export GREETING=hello
cat > c.txt <<'END'
of c
END
'''

'''console
$ echo $GREETING; cat c.txt; echo told >&2
hello
of c
told
$ grep --quiet z b.toml
$ echo $?
1
$ echo a \\
>   b; echo took 1.5 s
a b
took 12.4 s
'''

<!-- in: b.toml -->
'''toml
x = 1
…
y = 2
'''

<!-- exit code: 3 -->
'''console
$ sh -c 'seq 100; exit 3'
1
…
50
…
100
'''

<!-- not run: it ends badly -->
'''sh
false
'''
"""


def test_a_page_that_is_right_is_followed_to_its_end(tmp_path: Path) -> None:
    follow(page(tmp_path, WHOLE), tmp_path)
    assert (tmp_path / "workspace/b.toml").read_text() == "x = 1\n\ny = 2\n"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("hello\nof c", "hallo\nof c", "page.md:22: echo $GREETING"),
        ("told\n$", "$", "page.md:22: echo $GREETING"),
        ("$?\n1", "$?\n0", "exit code 1, and not 0"),
        ("y = 2\n'''\n\n<!-- exit", "y = 3\n'''\n\n<!-- exit", "not in b.toml"),
        ("code: 3", "code: 4", "exit code 3, and not 4"),
        ("<!-- not run: it ends badly -->", "", "exit code 1"),
        ("cp settings", "cp nowhere", "exit code 1"),
        ("50\n", "500\n", "the page shows"),
    ],
)
def test_what_differs_is_told(old: str, new: str, told: str, tmp_path: Path) -> None:
    assert WHOLE.count(old) == 1
    with pytest.raises(PageDiffersError) as error:
        follow(page(tmp_path, WHOLE.replace(old, new)), tmp_path)
    assert told in str(error.value)


@pytest.mark.parametrize(
    "text",
    ["<!-- word: x -->", "<!-- not run: there is no block -->\n", "'''console\nno command\n'''"],
)
def test_a_page_that_cannot_be_read_is_told(text: str, tmp_path: Path) -> None:
    with pytest.raises(PageError):
        follow(page(tmp_path, f"# A page\n\n{text}\n"), tmp_path)


@pytest.mark.parametrize(
    ("shown", "printed", "is_equal"),
    [
        ("1 action: 1 ran · 0.1 s", "1 action: 1 ran · 1 min 05 s", True),
        ("1 action: 1 ran · 0.1 s", "1 action: 2 ran · 0.1 s", False),
        ("key 0a1b2c3d4e", "key ffffffffff00", True),
        ("key deadbeef", "key decorated", False),
        ("18 MB of x", "1.5 kB of x", True),
        ("a\n…\nc", "a\nc", True),
        ("a\n…\nc", "a\nb\nb\nc", True),
        ("a\n…", "b", False),
        ("to …/lib.so", "to /home/me/lib.so", True),
        ("made", "[3/9] 20.0 s · 4 running · longest //:a Export\nmade", True),
        ("1 action: done", "TARGET  OUTCOME  RAN\n//:a  built  3\n1 action: done\ncritical path 2.0 s: a", True),
        ("a\ncritical path 2.0 s: a", "a\ncritical path 2.0 s: b", False),
    ],
)
def test_what_varies_is_not_compared(shown: str, printed: str, is_equal: bool) -> None:
    assert (difference(shown, printed) == "") == is_equal
