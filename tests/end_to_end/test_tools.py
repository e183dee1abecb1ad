"""What tools do wrong, and what may be an output: the message, the exit code, and a cache that is still right."""

from __future__ import annotations

import os

import pytest

from tests.end_to_end.world import HEAD, World, command

ENDING = "1 action: 1 failed · 0.0 s\ncritical path 0.0 s: Command\n"


def failure(script: str, world: World, *, outputs: tuple[str, ...] = ("out",)) -> str:
    """What is said of a command that fails; nothing of it is kept, and it fails again."""
    world.commands(command("x", script, outputs=outputs))
    done = world.build()
    assert (done.code, done.out) == (1, "")
    assert done.actions == {"failed": 1}
    assert world.verify() == 0
    assert not world.output("x").exists()
    assert world.build().actions == {"failed": 1}, "a failure is not remembered"
    return done.err


@pytest.mark.parametrize(
    ("script", "outputs", "message"),
    [
        ("exit 3", ("out",), "failed after 0.0 s: '/bin/sh' ended with exit code 3\n"),
        ("true", ("out",), "failed after 0.0 s: did not make the declared output 'out/out'\n"),
        (
            "echo > other; echo > out/a",
            ("a", "b"),
            "failed after 0.0 s: did not make the declared output 'out/b'\n    it made: other, out/a\n",
        ),
        (
            "mkdir $1",
            ("out",),
            "failed after 0.0 s: output 'out/out' was declared as a file and is a directory"
            ' (declare it as "out/out/")\n',
        ),
        (
            "rmdir $1; echo > out/d",
            ("d/",),
            "failed after 0.0 s: output 'out/d' was declared as a directory and is a file\n",
        ),
        (
            "ln -s /etc/hostname $1",
            ("out",),
            "failed after 0.0 s: output 'out/out' is a symbolic link to the absolute path '/etc/hostname'\n",
        ),
        (
            "ln -s ../../../../../../../etc/hostname $1",
            ("out",),
            "failed after 0.0 s: output 'out/out' is a symbolic link that leaves the action's directory\n",
        ),
        (
            "ln -s nothing $1",
            ("out",),
            "failed after 0.0 s: output 'out/out' is a symbolic link to nothing ('nothing')\n",
        ),
        (
            "mkfifo $1",
            ("out",),
            "failed after 0.0 s: output 'out/out' is neither a file nor a directory (mode prw-r--r--)\n",
        ),
        (
            "ln -s . ${1}loop",
            ("d/",),
            "failed after 0.0 s: output 'out/d/loop' is a symbolic link to a directory that holds it\n",
        ),
        (
            r"touch $(printf 'out/d/\377')",
            ("d/",),
            r"failed after 0.0 s: output 'out/d/\xff': the name is not UTF-8" + "\n",
        ),
        ("kill -SEGV $$", ("out",), "failed after 0.0 s: crashed with SIGSEGV; its log follows\n"),
        ("kill -ABRT $$", ("out",), "failed after 0.0 s: crashed with SIGABRT; its log follows\n"),
    ],
)
def test_what_a_tool_does_wrong_is_said(world: World, script: str, outputs: tuple[str, ...], message: str) -> None:
    told = failure(script, world, outputs=outputs)
    head, _, rest = told.partition("error: //:x was not built")
    assert head.replace("[1/1] //:x Command ", "", 1) == message
    assert rest == ": //:x Command failed\n" + ENDING


def test_a_log_of_any_bytes_is_shown_without_harm(world: World) -> None:
    told = failure(r"printf 'a\033[2Jb\377\n'; exit 1", world)
    assert "\x1b" not in told
    assert r"  │ a\x1b[2Jb\xff" in told


def test_outputs_before_a_failure_are_not_kept(world: World) -> None:
    failure("echo whole > $1; exit 1", world)


def test_whatever_is_written_besides_outputs_is_gone(world: World) -> None:
    world.commands(command("x", "echo a > $1; echo b > out/b; echo c > c; mkdir d; echo e > $TMPDIR/e; chmod 0 d"))
    assert world.build().code == 0
    assert [path.name for path in world.output("x").iterdir()] == ["out"]
    assert world.scratch == []
    assert world.verify() == 1


def test_inputs_cannot_be_changed_for_others(world: World) -> None:
    world.write("in.txt", "old\n")
    world.commands(
        command("a", "cat $2 > $1", inputs=["in.txt"], outputs=["a"]),
        command("b", "chmod u+w $2; echo new > $2; cat $2 > $1", inputs=[":a"], outputs=["b"]),
        command("c", "cat $2 > $1", inputs=[":a", ":b"], outputs=["c"]),
    )
    assert world.build().code == 0, "a tool has copies of its own"
    assert world.output("a/a").read_text() == "old\n"
    assert world.output("b/b").read_text() == "new\n"
    assert world.output("c/c").read_text() == "old\n"
    assert (world.root / "in.txt").read_text() == "old\n"
    assert world.verify() == 3


def test_an_action_sees_no_variable_of_the_user_and_no_file_that_is_not_declared(world: World) -> None:
    world.write("declared.txt", "")
    world.write("hidden.txt", "")
    world.commands(
        command("x", "(env; find . -type f) | sort > $1", inputs=["declared.txt"], more='environment = { A = "b" }')
    )
    assert world.build(SECRET="abc").code == 0
    seen = world.output("x/out").read_text()
    assert "SECRET" not in seen
    assert "A=b\n" in seen
    assert "hidden" not in seen
    assert "declared.txt\n" in seen
    assert world.mlcbuild("clean").code == 0
    assert world.build(SECRET="def", PATH="/bin", USER="x").actions == {"disk_hits": 1}


def test_executable_bits_are_kept_and_count(world: World) -> None:
    file = world.write("program", "#!/bin/sh\necho ran\n", executable=True)
    world.commands(
        command("copy", "cp $3 $1; cp $3 $2; chmod -x $2", inputs=["program"], outputs=["out", "plain"]),
        command("run", "in/program > $1 || echo cannot > $1; ls -l in | cut -c4 >> $1", inputs=["program"]),
    )
    assert world.build().code == 0
    assert os.access(world.output("copy/out"), os.X_OK)
    assert not world.output("copy/plain").stat().st_mode & 0o111
    assert world.output("run/out").read_text().startswith("ran\n")
    file.chmod(0o644)
    assert world.build().actions == {"executed_local": 2}
    assert world.output("run/out").read_text().startswith("cannot\n")
    assert not world.output("copy/out").stat().st_mode & 0o111, "the same bytes with another bit are placed anew"
    file.chmod(0o755)
    assert world.build().actions == {"disk_hits": 2}
    assert os.access(world.output("copy/out"), os.X_OK)
    world.verify()


def test_a_program_that_an_action_made_can_run_at_once(world: World) -> None:
    head = HEAD + '[[tool]]\nname = "made"\nexecutable = ":maker"\n'
    use = '[[command]]\nname = "use{0}"\ntool = ":made"\noutputs = ["out"]\narguments = ["{0}", "{{outputs}}"]\n'
    world.commands(
        command("maker", "cp $2 $1; chmod +x $1", inputs=["source"], outputs=["tool"]),
        *(use.format(index) for index in range(8)),
        head=head,
    )
    world.write("source", "#!/bin/sh\necho $1 > $2\n")
    assert world.build("--jobs", "4").code == 0
    assert [world.output(f"use{index}/out").read_text() for index in range(8)] == [f"{index}\n" for index in range(8)]


def test_empty_files_and_folders_and_links_are_outputs(world: World) -> None:
    script = """
        : > $1
        mkdir ${2}empty ${2}deep ${2}deep/er; : > ${2}deep/er/file
        ln -s deep/er/file ${2}link; ln -s ../whole out/d/up; ln -s deep ${2}folder; echo w > out/whole
    """
    world.commands(
        command("x", script, outputs=["nothing", "d/", "whole", "e/"]),
        command("y", "find $2 in/e in/nothing | sort > $1; cat $(find in -type f) >> $1", inputs=[":x"]),
    )
    for actions in ({"executed_local": 2}, {"up_to_date": 2}):
        assert world.build().actions == actions
        assert world.output("x/nothing").read_bytes() == b""
        files = {
            path.relative_to(world.output("x")).as_posix() for path in world.output("x").rglob("*") if path.is_file()
        }
        assert files == {"nothing", "whole", "d/deep/er/file", "d/link", "d/up", "d/folder/er/file"}
        assert world.output("x/d/up").read_text() == "w\n"
        assert not world.output("x/d/up").is_symlink()
    assert world.output("y/out").read_text().count("w\n") == 2
    assert world.verify() == 2


def test_a_tool_outside_the_workspace_counts_by_its_content(world: World) -> None:
    tool = world.folder / "outside" / "tool"
    tool.parent.mkdir()

    def install(text: str) -> None:
        tool.write_text(f"#!/bin/sh\necho {text} > $1\n")
        tool.chmod(0o755)

    head = f'[workspace]\nname = "example"\n[[tool]]\nname = "sh"\npath = "{tool}"\n'
    world.commands('[[command]]\nname = "x"\ntool = ":sh"\noutputs = ["out"]\narguments = ["{outputs}"]\n', head=head)
    install("one")
    assert world.build().actions == {"executed_local": 1}
    install("two")
    assert world.build().actions == {"executed_local": 1}
    assert world.output("x/out").read_text() == "two\n"
    install("one")
    assert world.build().actions == {"disk_hits": 1}
    assert world.output("x/out").read_text() == "one\n"


def test_a_tool_that_is_not_there_is_the_machines_fault(world: World) -> None:
    head = '[workspace]\nname = "example"\n[[tool]]\nname = "sh"\npath = "/bin/no-such-program"\n'
    world.commands(command("x", "true"), head=head)
    done = world.build()
    assert done.code == 36
    assert "there is no program /bin/no-such-program\n    install it, or correct its path" in done.err
    assert done.err.endswith("this may be retried: this machine failed, not your targets\n")


def test_a_tool_gets_what_links_to_folders_lead_to_and_sees_edits_behind_them(world: World) -> None:
    world.commands(command("all", "cat $(find in -type f | sort) > $1", inputs=["d"], outputs=["all"]))
    world.write("d/one.txt", "one\n")
    behind = world.write("real/two.txt", "two\n")
    (world.root / "d/lnk").symlink_to("../real")
    assert world.build(":all").code == 0
    assert world.output("all/all").read_text() == "two\none\n"
    behind.write_text("edited\n")
    assert world.build(":all").code == 0
    assert world.output("all/all").read_text() == "edited\none\n"
    world.write("real/three.txt", "three\n")
    assert world.build(":all").code == 0
    assert world.output("all/all").read_text() == "three\nedited\none\n"
    (world.root / "d/lnk/loop").symlink_to("../d")
    done = world.build(":all")
    assert done.code == 7
    assert "the folder 'd/lnk/loop' cannot be listed: it is a link to a folder that holds it" in done.err
