"""A service from its plan, without the control API: it accepts within the block, and is gone after it."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from egress_proxy.cli.arguments import serve_parser
from egress_proxy.cli.composition import StartFailed, serving
from egress_proxy.cli.plan import ServicePlan
from egress_proxy.cli.planning import command_of, plan_service
from egress_proxy.core.access import Access, Client, Door
from egress_proxy.core.decision import Allow
from egress_proxy.core.grants import Limits
from egress_proxy.core.host import parse_authority
from egress_proxy.core.policy import Policy, decide
from egress_proxy.core.rules import Suffix, parse_rule
from tests.conftest import Start
from tests.support.byte_stream import connect
from tests.support.deadline import eventually
from tests.support.http import read_head
from tests.support.origins import EchoOrigin
from tests.support.proc_figures import open_descriptors
from tests.support.program import REPOSITORY, run_cli
from tests.support.sandbox_caller import SandboxCaller
from tests.support.service import Service
from tests.support.service_answers import connect_request


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="eg-"))  # pytest's own paths may be too long for a socket's name
    yield made
    shutil.rmtree(made)


def plan_of(folder: Path, *args: str) -> ServicePlan:
    argv = ("--bind", "127.0.0.1:0", *args, "-q")
    environ = {"XDG_RUNTIME_DIR": str(folder)}
    return plan_service(command_of(serve_parser("serve").parse(argv)), environ, lambda names: None).plan


def attach_and_ask(path: Path, target: str) -> tuple[int, dict[str, object]]:
    with SandboxCaller(str(path)) as one:
        return one.attach().status(target), one.end()


async def test_it_accepts_and_lets_sandboxes_attach_until_the_block_ends(folder: Path, start: Start) -> None:
    echo = start(EchoOrigin())
    before = open_descriptors(os.getpid())
    async with serving(plan_of(folder, "--allow", echo.address)) as composed:
        path = folder / "egress-proxy" / "attach.sock"
        assert (composed.attach, composed.warnings) == (path, ())
        status, report = await asyncio.to_thread(attach_and_ask, path, echo.address)
        assert (status, len(report["reached"])) == (200, 1)  # type: ignore[arg-type]
        sock = await asyncio.to_thread(connect, composed.doors.port)
        sock.sendall(connect_request("evil.example:443"))
        assert (await asyncio.to_thread(read_head, sock)).status == 403
        sock.close()
    assert not path.exists()
    with pytest.raises(ConnectionRefusedError):
        connect(composed.doors.port)
    assert open_descriptors(os.getpid()) <= before + 1  # the echo's end of what was open


async def test_grants_end_by_a_clock_that_nobody_sets(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(plan_of(folder, "--allow-none")) as composed:
        parts, rule = composed.service.parts, parse_rule("a.example", lambda _: Suffix.NONE)
        parts.grants.add(rule, Limits(ttl_s=0.2))
        monkeypatch.setattr(time, "time", lambda: 0.0)  # the time of day is set back
        begun = parts.clock()
        access = Access(Client(), parse_authority("a.example:443"), Door.TUNNEL)
        while isinstance(decide(access, Policy(), parts.grants.snapshot(), parts.clock()), Allow):
            await asyncio.sleep(0.01)
            assert parts.clock() - begun < 2


async def test_a_reload_of_a_long_list_does_not_hold_up_the_loop(folder: Path) -> None:
    """Read on the loop, 100,000 entries stopped all tunnels for four seconds."""
    listed = folder / "egress.toml"
    listed.touch(mode=0o600)
    listed.write_text("".join(f'[[allow]]\nhost = "h{number}.example"\n' for number in range(20_000)))
    async with serving(plan_of(folder, "--config", str(listed))) as composed:
        stalls = [0.0]

        async def watch_the_clock() -> None:
            last_s = time.monotonic()
            while True:
                await asyncio.sleep(0.001)
                now_s = time.monotonic()
                stalls.append(now_s - last_s)
                last_s = now_s

        clock = asyncio.get_running_loop().create_task(watch_the_clock())
        begun_s = time.monotonic()
        listed.write_text("[[allow]]\nhost = 'a.example'\n" + listed.read_text())
        assert (await composed.service.reload()).tunnels == 0
        took_s = time.monotonic() - begun_s
        clock.cancel()
        assert sum(1 for _ in composed.service.parts.in_force.policy.allow) == 20_001
        assert max(stalls) < max(0.05, took_s / 4)  # a busy machine stretches both


async def test_reloads_that_come_together_are_made_one_after_the_other(folder: Path) -> None:
    listed = folder / "egress.toml"
    listed.touch(mode=0o600)
    listed.write_text("allow_none = true\n")
    async with serving(plan_of(folder, "--config", str(listed))) as composed:
        first = asyncio.get_running_loop().create_task(composed.service.reload())
        await asyncio.sleep(0)
        new = folder / "new.toml"
        new.touch(mode=0o600)
        new.write_text('[[allow]]\nhost = "new.example"\n')
        new.replace(listed)
        await asyncio.gather(first, composed.service.reload())
        assert [text for _, text in composed.service.parts.in_force.policy.allow] == ["new.example"]


async def test_a_fault_in_the_block_ends_the_service_too(folder: Path) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        async with serving(plan_of(folder, "--allow-none")) as composed:
            raise ZeroDivisionError
    assert caught.group_contains(ZeroDivisionError)
    with pytest.raises(ConnectionRefusedError):
        connect(composed.doors.port)


async def test_the_default_place_of_a_living_proxy_is_left_to_it_and_a_named_one_is_an_error(
    folder: Path,
) -> None:
    async with serving(plan_of(folder, "--allow-none")) as first:
        async with serving(plan_of(folder, "--allow-none")) as second:
            assert (second.attach, second.doors.attach) == (None, None)
            [warning] = second.warnings
            assert "another process is listening there" in warning
        assert first.attach is not None
        assert first.attach.is_socket()
        with pytest.raises(StartFailed, match="another process is listening there"):
            async with serving(plan_of(folder, "--allow-none", "--attach", str(first.attach))):
                raise AssertionError


def test_a_service_says_so_in_one_line_and_serves_all_the_same(start: Start, folder: Path) -> None:
    env = {"XDG_RUNTIME_DIR": str(folder)}
    first = start(Service("--allow-none", env=env))
    second = start(Service("--allow-none", env=env))
    eventually(lambda: "warning: " in second.stderr.text, what="the warning, on a road of its own")
    [warning] = [line for line in second.stderr.text.splitlines() if line.startswith("warning: ")]
    assert first.attach_path in warning
    assert second.status("evil.example:443") == 403
    assert "EGRESS_ATTACH" not in second.stdout.text
    done = run_cli("serve", "--allow-none", "--bind", "127.0.0.1:0", "--attach", first.attach_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"error: cannot listen on {first.attach_path}: ")
    assert first.stop() == 0
    assert not Path(first.attach_path).exists()


def test_it_is_composed_without_a_web_framework() -> None:
    code = "import sys, egress_proxy.cli.serve; print({'aiohttp', 'control_api'} & set(sys.modules))"
    argv = [sys.executable, "-c", code]
    told = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=True)
    assert told.stdout == "set()\n"
