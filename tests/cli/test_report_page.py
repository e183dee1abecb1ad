"""The report page in a real Chromium: what it shows, the keyboard, links, themes, and that it needs no network."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mlcbuild.cli.main import main
from mlcbuild.engine.build_events import TargetFinished
from tests.cli.browser import Browser, chromium
from tests.cli.report_builds import BUILD_FILE, EventLogText, action, large_build, small_build, spread_build

pytestmark = pytest.mark.slow

ACCESSIBILITY = (Path(__file__).parent / "accessibility.js").read_text(encoding="utf-8")
NASTY = "</script><img src=x onerror=alert(1)><!--<script>&quot;\u2028'\"{{data}}"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("profile")) as driver:
        yield Browser(driver)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("small"), small_build())


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("large"), large_build(10_000))


def written(folder: Path, build: EventLogText, *options: str) -> Path:
    events, page = build.write(folder / "events.jsonl"), folder / "page.html"
    command = ["report", "--events", str(events), "--to", str(page), "--disk-cache", str(folder / "cache"), *options]
    assert main(command) == 0
    return page


def titles(browser: Browser) -> list[str]:
    return [text.split("\n")[0] for text in browser.texts(".rows .row > :nth-child(2)")]


@pytest.mark.parametrize("view", ["overview", "timeline", "actions", "targets", "comparison"])
@pytest.mark.parametrize("dark", [False, True])
def test_each_view_works_without_network_and_without_complaints(
    view: str, dark: bool, browser: Browser, small: Path
) -> None:
    browser.open(small, f"#{view}", dark=dark)
    assert browser.text("#views [aria-current]").startswith(view.capitalize())
    assert browser.run("document.getElementById('content').children.length") > 0
    assert browser.complaints() == []
    assert browser.requests() == [small.as_uri()]


def test_an_action_lists_what_it_announced(browser: Browser, tmp_path: Path) -> None:
    kernels = [
        action(f"CompileKernel k{number}", "disk_hit", 1, 1, announced_by="//m:a Partition") for number in range(20)
    ]
    page = written(tmp_path, EventLogText(actions=[action("Partition", "executed_local", 0, 1), *kernels]))
    browser.open(page, "#actions?action=%2F%2Fm%3Aa+Partition")
    assert "Announced 20" in browser.text("#action")
    assert "CompileKernel k0" in browser.text("#action")
    browser.open(page, "#actions?q=announced%3APartition+-k1")
    assert len(titles(browser)) == 9


def test_the_overview_tells_how_the_build_ended(browser: Browser, small: Path) -> None:
    browser.open(small)
    assert browser.text("h1") == "Failed after 10.0 s: 1 of 3 targets not built"
    assert browser.driver.title == "✕ //m:a, //m:b · mlcbuild"
    (failure,) = browser.texts(".failures article")
    assert failure.split("\n") == ["//m:b Lower", "no symbol foo", "it goes wrong"]
    shown = browser.text(".overview")
    for expected in ("from remote\t1\t9 %", "4.00 s", "a worker was lost", "↓ 18 MB", "no result"):
        assert expected in shown, shown
    assert browser.texts(".path-list li")[0].split("\n")[0] == "Export"


def test_an_action_is_opened_with_what_is_known_of_it(browser: Browser, small: Path) -> None:
    browser.open(small, "#actions?action=%2F%2Fm%3Aa+CompileKernel+fused_add")
    panel = browser.text("#action")
    for expected in (
        "CompileKernel add n×2048 decode (a1b2c3d4)",
        "ran on ray",
        "ray node-2, node-2 worker 3",
        "100 MB at most",
        "none: on the critical path",
        "//m:b CompileKernel fused_add",
        "Why it ran: changed",
        "waited for a worker\n0.50 s",
        "Outputs 1",
        "mlcbuild show '//m:a CompileKernel fused_add' --build 1b4e28ba",
    ):
        assert expected in panel, panel
    browser.press("ESCAPE")
    assert browser.run("document.getElementById('action').hidden")
    assert browser.place() == "#actions"
    assert browser.run("document.activeElement.getAttribute('role')") == "grid"


def test_the_search_finds_words_and_fields(browser: Browser, small: Path) -> None:
    browser.open(small)
    browser.press("/", *"kernel")
    assert browser.place() == "#actions?q=kernel"
    assert titles(browser) == ["CompileKernel add n×2048 decode (a1b2c3d4)", "CompileKernel fused_mul"]
    for query, found in (
        ("status%3Afailed", ["Lower"]),
        ("why%3A%22no+result%22", ["CompileKernel fused_mul"]),
        ("where%3Anode-2", ["CompileKernel add n×2048 decode (a1b2c3d4)"]),
        ("target%3A%2F%2Fm%3Ab+-kind%3ALink", ["Export", "Lower"]),
        ("path%3Acritical", ["Export", "CompileKernel add n×2048 decode (a1b2c3d4)", "Link"]),
        ("nothing+like+this", []),
    ):
        browser.open(small, f"#actions?q={query}")
        assert titles(browser) == found, query
    browser.press("ESCAPE")
    assert browser.place() == "#actions"
    assert len(titles(browser)) == 11


def test_everything_can_be_done_with_the_keyboard(browser: Browser, small: Path) -> None:
    browser.open(small)
    for key, view in (("2", "timeline"), ("3", "actions"), ("4", "targets"), ("5", "comparison"), ("1", "overview")):
        browser.press(key)
        assert browser.place() == f"#{view}"
    browser.press("/", *"link", "ARROW_DOWN", "ARROW_DOWN", "ENTER")
    assert browser.place() == "#actions?q=link&action=//m:c+Link"
    browser.press("ARROW_DOWN")  # the panel follows
    assert browser.text("#action").startswith("//m:a\nLink")
    browser.press("k")
    assert browser.text("#action").startswith("//m:c\nLink")
    browser.press("ESCAPE", "ESCAPE")
    assert browser.place() == "#actions"
    browser.press("?")
    assert browser.run("document.getElementById('help').open")
    assert "the action before or after" in browser.text("#help")
    browser.press("ESCAPE")
    assert not browser.run("document.getElementById('help').open")


def test_the_timeline_is_walked_with_arrows(browser: Browser, small: Path) -> None:
    browser.open(small, "#timeline")
    browser.run("document.querySelector('canvas').focus()")
    said = []
    for key in ("ARROW_RIGHT", "ARROW_RIGHT", "ARROW_DOWN", "HOME", "END"):
        browser.press(key)
        said.append(browser.run("document.getElementById('said').textContent"))
    assert said[0] == "//m:a Export, ran here, 4.00 s"
    assert said[1] == "//m:a CompileKernel fused_mul, ran here, 1.10 s"
    assert "up to date" in said[4]
    browser.press("HOME", "+", "+")
    assert browser.run("page.views.get('timeline').to - page.views.get('timeline').from") < 5
    browser.press("0", "ENTER")
    assert browser.place() == "#timeline?action=//m:a+Export"


def test_the_timeline_has_lanes_by_node_and_worker_in_their_order(browser: Browser, tmp_path: Path) -> None:
    browser.open(written(tmp_path, spread_build()), "#timeline")
    timeline = "page.views.get('timeline')"
    lanes = "group.lanes.map((lane) => [lane.name, lane.actions.length])"
    groups = browser.run(f"{timeline}.groups.map((group) => [group.name, group.count, {lanes}])")
    names = ["worker 1", "worker 3", "worker 11"]
    assert groups == [
        ["this machine", 2, [["", 1], ["", 1]]],
        ["node-1", 3, [[name, 3] for name in names]],
        ["node-2", 3, [["worker 1", 3], ["worker 3", 3], ["", 1], ["worker 11", 3]]],
        ["node-10", 3, [[name, 3] for name in names]],
    ]
    assert browser.run(
        f"{timeline}.lanes.every((lane) => lane.actions.every((one, at, all) => !at || all[at - 1].time <= one.start))"
    )

    browser.run(f"new Promise((done) => setTimeout(() => ({timeline}.draw(), done()), 100))")
    is_written = f"""{timeline}.lanes.map((lane) => {{
      const view = {timeline}, ratio = devicePixelRatio || 1, y = (view.top + lane.y) * ratio;
      const found = view.canvas.getContext("2d").getImageData(7 * ratio, y + 4, 40 * ratio, view.lane * ratio - 8).data;
      return new Set(new Uint32Array(found.buffer)).size > 3;
    }})"""
    drawn = browser.run(f"{is_written}.slice(2)")  # those of this machine have an action there
    assert drawn == [bool(name) for _, _, own in groups[1:] for name, _ in own]

    browser.run("document.querySelector('canvas').focus()")
    said = []
    for key in ("HOME", *["ARROW_DOWN"] * 5):
        browser.press(key)
        said.append(browser.run("document.getElementById('said').textContent").partition(",")[0].removeprefix("//m:a "))
    assert said == [
        "Export",
        "Phase0",
        *(f"CompileKernel node-1-{worker}-0" for worker in (1, 3, 11)),
        "CompileKernel node-2-1-0",
    ]
    hovered = f"{timeline}.lanes.find((lane) => lane.group?.name === 'node-10').actions[0]"
    browser.run(f"{timeline}.hover({hovered}, {{ clientX: 300, clientY: 300 }})")
    assert "node-10 worker 1" in browser.text(".tip")


def test_links_lead_to_the_same_place_again(browser: Browser, small: Path) -> None:
    browser.open(small, "#actions?q=Export&sort=-Time&action=%2F%2Fm%3Aa+Export")
    assert titles(browser) == ["Export", "Export"]
    assert browser.run("document.getElementById('query').value") == "Export"
    assert browser.text("#action-title") == "Export"
    browser.click("#action .owner")
    assert browser.place() == '#actions?q=target:"//m:a"'
    browser.driver.back()
    assert browser.text("#action-title") == "Export"


def test_the_matrix_is_a_grid_with_the_state_of_each_cell(browser: Browser, small: Path) -> None:
    browser.open(small, "#targets")
    rows = [row.split() for row in browser.texts(".matrix tr")]
    assert rows == [
        ["model", "cpu", "sm_90"],
        ["small", "built", "8.40", "s", "failed", "1.50", "s"],
        ["large", "cached", "1", "hit", "skipped"],
    ]
    browser.run("document.querySelector('.matrix .cell[title*=\"//m:b\"]').click()")
    assert browser.place() == '#actions?q=target:"//m:b"'


@pytest.mark.parametrize("dark", [False, True])
def test_the_theme_is_the_systems_until_the_user_chooses(dark: bool, browser: Browser, small: Path) -> None:
    browser.open(small, dark=dark)
    browser.run("localStorage.clear()")
    browser.open(small, dark=dark)
    light_ground, dark_ground = "rgb(245, 246, 248)", "rgb(16, 19, 23)"
    ground = "getComputedStyle(document.body).backgroundColor"
    assert browser.run(ground) == (dark_ground if dark else light_ground)
    browser.press("t")
    assert browser.run(ground) == light_ground
    browser.press("t")
    assert browser.run(ground) == dark_ground
    browser.open(small, "#timeline", dark=dark)
    assert browser.run(ground) == dark_ground  # it is kept
    browser.run("localStorage.clear()")


@pytest.mark.parametrize("dark", [False, True])
def test_text_has_enough_contrast(dark: bool, browser: Browser, small: Path) -> None:
    """WCAG AA: 4.5 for text, against the nearest opaque ground."""
    for view in ("overview", "actions", "targets"):
        browser.open(small, f"#{view}?action=%2F%2Fm%3Ab+Lower", dark=dark)
        assert browser.run(f"(() => {{ {ACCESSIBILITY}; return lowContrast(); }})()") == []


def test_controls_have_names_and_tables_have_roles(browser: Browser, small: Path) -> None:
    for view in ("overview", "timeline", "actions", "targets", "comparison"):
        browser.open(small, f"#{view}")
        assert browser.run(f"(() => {{ {ACCESSIBILITY}; return nameless(); }})()") == []
    browser.open(small, "#actions")
    assert browser.run("document.querySelector('[role=grid]').getAttribute('aria-rowcount')") == "12"
    assert browser.run("document.querySelector('[aria-sort=ascending]').innerText") == "Start"


def test_nothing_of_a_build_becomes_markup(browser: Browser, tmp_path: Path) -> None:
    build = EventLogText(
        actions=[
            action(
                f"Export {NASTY}",
                "failed",
                0.0,
                1.0,
                message=NASTY,
                log=f"{NASTY}\x1b[31mred\x1b[0m".encode(),
                node=NASTY,
            ),
            action(f"Link {NASTY}", "executed_local", 1.0, 2.0, owner=NASTY, worker=NASTY, details={NASTY: NASTY}),
        ],
        targets=[TargetFinished(label=NASTY, success=False, error=NASTY, outputs=(NASTY,))],
        axes={NASTY: {NASTY: NASTY, "b": NASTY}},
        notices=[NASTY],
        exit_code=1,
    )
    page = written(tmp_path, build)
    for view in ("overview", "timeline", "actions", "targets", "comparison"):
        browser.open(page, f"#{view}")
        browser.run(f"page.go({{view: '{view}', action: page.build.actions[0].identifier}})")
        assert NASTY.replace("\u2028", " ") in browser.run("document.getElementById('action').textContent").replace(
            "\u2028", " "
        )
        assert browser.run("document.querySelectorAll('img, script:not(body > script)').length") == 0
        assert browser.complaints() == []
        assert len(browser.requests()) == 1
    assert "red" in browser.text("#action .log")
    assert "[31m" not in browser.text("#action .log")


def test_a_build_without_actions_has_a_page(browser: Browser, tmp_path: Path) -> None:
    page = written(tmp_path, EventLogText(actions=[], targets=[TargetFinished(label="//m:a", success=True)]))
    for view, shown in (("overview", "Built //m:a"), ("timeline", "There was nothing to do."), ("targets", "//m:a")):
        browser.open(page, f"#{view}")
        assert shown in browser.text("#content")
        assert browser.complaints() == []


def test_ten_thousand_actions_are_few_elements(browser: Browser, large: Path) -> None:
    browser.open(large, "#actions")
    assert browser.text(".count").startswith("10,000 actions")
    assert browser.run("document.querySelectorAll('*').length") < 1500
    browser.run("document.querySelector('.table').focus()")
    browser.press("END")
    assert browser.run("document.querySelector('[aria-selected=true]').getAttribute('aria-rowindex')") == "10001"
    browser.press("/", *"prefill+3")
    assert browser.text(".count").startswith("1,4")
    assert browser.complaints() == []


def test_an_earlier_build_is_compared(browser: Browser, tmp_path: Path) -> None:
    earlier = small_build()
    earlier.actions = [
        *(
            replace(each, time=each.time + 1.0) if each.identifier == "//m:a Export" else each
            for each in earlier.actions
            if each.owner != "//m:c"
        ),
        action("Extra", "executed_local", 0.0, 3.0),
    ]
    earlier.wall_seconds = 12.0
    events = earlier.write(tmp_path / "earlier.jsonl")
    browser.open(written(tmp_path, small_build(), "--compare", str(events)), "#comparison")
    assert browser.texts(".totals tbody tr")[0] == "Duration\t12.0 s\t10.0 s\t−2.00 s"
    rows = [text.split("\n") for text in browser.texts(".rows .row")]
    assert [(row[0], row[1], row[-1]) for row in rows] == [
        ("//m:a Extra", "gone", "−3.00 s"),
        ("//m:a Export", "5.00 s", "−1.00 s"),
        ("//m:c Link", "new", "same"),
    ]
    browser.click(".chips [data-name=new]")
    assert [text.split("\n")[0] for text in browser.texts(".rows .row")] == ["//m:c Link"]


def test_a_changed_source_is_shown_as_a_diff_and_inputs_lead_to_who_made_them(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "BUILD.toml").write_text(BUILD_FILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for content in ("one\n", "two\n"):
        (tmp_path / "data.txt").write_text(content)
        assert main(["build", ":again-small", "--quiet"]) == 0
    assert main(["report"]) == 0
    browser.open(tmp_path / ".mlcbuild/report.html", "#actions?action=%2F%2F%3Acopy+Command")
    assert browser.text("#action .diff") == "@@ -1 +1 @@\n-one\n+two"
    browser.click("#action .files .relation a")
    assert browser.place() == "#actions?action=//:again-small+Command"
    assert browser.text("#action .differences li").startswith("input in/copy.txt of //:copy Command")
    assert browser.complaints() == []


@pytest.mark.parametrize("view", ["overview", "timeline", "actions", "targets", "comparison"])
def test_a_narrow_window_has_no_sideways_scrolling(view: str, browser: Browser, small: Path) -> None:
    browser.open(small, f"#{view}", width=380, height=740)
    assert browser.run("document.documentElement.scrollWidth") <= 380
    assert browser.complaints() == []
